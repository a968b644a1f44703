"""The pictures: what is drawn is what was computed, and matplotlib's conventions hold."""

import inspect

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from fisher8_jax import Gaussian, plots


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def points():
    """Right predictions at 200 unsorted inputs."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0, 4, size=200)
    log_variance = inputs - 4
    targets = np.sin(inputs) + np.exp(log_variance / 2) * rng.normal(size=200)
    return Gaussian(jnp.sin(inputs), jnp.asarray(log_variance)), inputs, targets


# How to call every function that draws into one Axes, from (dist, inputs, targets).
ONE_AXES = {
    "plot_fit": lambda p, **kw: plots.plot_fit(p[0], p[1], p[2], **kw),
    "plot_reliability": lambda p, **kw: plots.plot_reliability(p[0], p[2], **kw),
    "plot_pit": lambda p, **kw: plots.plot_pit(p[0], p[2], **kw),
    "plot_intervals": lambda p, **kw: plots.plot_intervals(p[0], p[2], **kw),
    "plot_residuals": lambda p, **kw: plots.plot_residuals(p[0], p[2], **kw),
    "plot_importance": lambda p, **kw: plots.plot_importance(("a", "b"), [1, 2], [2, 1], **kw),
}
PLOTS = {name: value for name, value in vars(plots).items() if name.startswith("plot_")}


def test_the_table_names_every_plot():
    assert set(PLOTS) == set(ONE_AXES)


@pytest.mark.parametrize("name", ONE_AXES)
def test_draws_into_the_given_axes_or_the_current_ones(points, name):
    _, (left, right) = plt.subplots(1, 2)
    assert ONE_AXES[name](points, ax=left) is left
    assert not right.has_data()
    assert ONE_AXES[name](points) is right  # the current axes are those made last
    assert right.get_xlabel()
    assert right.get_ylabel()
    right.figure.canvas.draw()


@pytest.mark.parametrize("name", ONE_AXES)
def test_labels_of_the_caller_are_kept(points, name):
    _, ax = plt.subplots()
    ax.set(xlabel="my x", ylabel="my y")
    ONE_AXES[name](points, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("my x", "my y")


def covered_by_the_legend(ax):
    """How many drawn points of lines and bars lie under the legend, after the layout."""
    ax.figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    inside = 0
    for line in ax.lines:
        points = line.get_transform().transform(np.asarray(line.get_xydata(), float))
        inside += sum(box.contains(*point) for point in points)
    bars = [bar.get_window_extent() for bars in ax.containers for bar in bars.get_children()]
    return inside + sum(bar.y1 > box.y0 for bar in bars)


@pytest.mark.parametrize("layout", ["constrained", None])
@pytest.mark.parametrize("name", ONE_AXES)
def test_the_legend_hides_nothing(points, name, layout):
    _, axes = plt.subplots(1, 2, figsize=(9, 4), layout=layout)
    for ax in axes:
        ONE_AXES[name](points, ax=ax)
        ONE_AXES[name](points, ax=ax)  # a second model into the same axes, with a longer legend
        ax.set_title("title")
    assert not [covered_by_the_legend(ax) for ax in axes if covered_by_the_legend(ax)]


def test_limits_of_the_caller_are_kept(points):
    ax = plt.subplots()[1]
    ax.set_ylim(-3, 3)
    assert plots.plot_fit(points[0], points[1], ax=ax).get_ylim() == (-3, 3)


@pytest.mark.parametrize("name", ONE_AXES)
def test_hyper_parameters_are_keyword_only_and_kwargs_are_forwarded(name):
    parameters = inspect.signature(PLOTS[name]).parameters
    axes = parameters["ax"]
    assert axes.kind is inspect.Parameter.KEYWORD_ONLY
    assert axes.default is None
    assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_keywords_reach_the_main_artist(points):
    dist, inputs, targets = points
    _, axes = plt.subplots(5, 1)
    line = plots.plot_fit(dist, inputs, c="red", lw=7, label="mine", ax=axes[0]).lines[-1]
    assert (line.get_color(), line.get_linewidth(), line.get_label()) == ("red", 7, "mine")
    line = plots.plot_reliability(dist, targets, color="red", ls=":", ax=axes[1]).lines[-1]
    assert (line.get_color(), line.get_linestyle()) == ("red", ":")
    bar = plots.plot_pit(dist, targets, color="red", hatch="/", ax=axes[2]).containers[0][0]
    assert (bar.get_hatch(), to_hex(bar.get_facecolor())) == ("/", "#ff0000")
    band = plots.plot_intervals(dist, targets, alpha=0.25, ax=axes[3]).collections[0]
    assert band.get_alpha() == 0.25
    dots = plots.plot_residuals(dist, targets, marker="+", ax=axes[4]).lines[0]
    assert dots.get_marker() == "+"


def test_fit_draws_sorted_quantiles(points):
    dist, inputs, targets = points
    ax = plots.plot_fit(dist, inputs, targets, truth=np.sin(inputs), levels=(0.9,))
    order = np.argsort(inputs)
    lower, upper = ax.lines[0], ax.lines[1]
    np.testing.assert_array_equal(lower.get_xdata(), inputs[order])
    expected = scipy.stats.norm(np.sin(inputs), np.exp((inputs - 4) / 2)).ppf([[0.05], [0.95]])
    np.testing.assert_allclose(lower.get_ydata(), expected[0][order], rtol=1e-9)
    np.testing.assert_allclose(upper.get_ydata(), expected[1][order], rtol=1e-9)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["90 % interval", "targets", "truth", "mean"]


def test_reliability_is_the_empirical_distribution_of_the_pit(points):
    dist, _, targets = points
    line = plots.plot_reliability(dist, targets).lines[-1]
    u = scipy.stats.norm.cdf(np.asarray(dist.standardize(targets)))
    for p in (0.1, 0.5, 0.9):
        drawn = line.get_ydata()[line.get_xdata() <= p].max()
        assert drawn == pytest.approx(np.mean(u <= p), abs=1e-12)


def test_a_second_model_adds_no_second_diagonal(points):
    dist, _, targets = points
    ax = plots.plot_reliability(dist, targets, label="a")
    plots.plot_reliability(dist, targets, label="b")
    assert ax.get_legend_handles_labels()[1] == ["95 % band of a calibrated model", "a", "b"]


def test_predictions_that_are_not_finite_are_counted_against_the_model(points):
    dist, _, targets = points
    broken = Gaussian(dist.mean.at[:50].set(jnp.nan), dist.log_variance)
    ax = plots.plot_pit(broken, targets)
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert sum(heights) == pytest.approx(150 / 200)
    assert "model, 50 of 200 not finite" in ax.get_legend_handles_labels()[1]
    line = plots.plot_reliability(broken, targets, ax=plt.figure().add_subplot()).lines[-1]
    assert line.get_ydata()[-1] == pytest.approx(150 / 200)


def test_intervals_count_what_lies_outside(points):
    dist, _, targets = points
    where = jnp.arange(200) < 120
    ax = plots.plot_intervals(dist, targets, level=0.8, where=where)
    z = np.asarray(dist.standardize(targets))[:120]
    outside = np.abs(z) > scipy.stats.norm.ppf(0.9)
    crosses = ax.lines[-1]
    assert len(crosses.get_xdata()) == outside.sum()
    assert ax.get_legend_handles_labels()[1][-1] == f"outside, {100 * outside.mean():.3g} %"


def test_group_averages_of_residuals(points):
    dist, _, targets = points
    ax = plots.plot_residuals(dist, targets, groups=1)
    diamond = ax.containers[0].lines[0]
    residuals = targets - np.asarray(dist.mean)
    drawn = diamond.get_xydata()[0]
    std = np.sqrt(np.mean(np.asarray(dist.variance)))
    np.testing.assert_allclose(drawn, [std, np.sqrt(np.mean(residuals**2))], rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrow_types_can_be_drawn(points, dtype):
    dist, inputs, targets = points
    dist = Gaussian(dist.mean.astype(dtype), dist.log_variance.astype(dtype))
    inputs, targets = jnp.asarray(inputs, dtype), jnp.asarray(targets, dtype)
    for draw in ONE_AXES.values():
        assert isinstance(draw((dist, inputs, targets), ax=plt.figure().add_subplot()), Axes)


def test_several_inputs_are_drawn_along_the_prediction_or_one_of_them(points):
    dist, inputs, targets = points
    rows = np.stack([inputs, -2 * np.asarray(inputs)], axis=1)
    ax = plots.plot_fit(dist, rows, targets, levels=(0.9,), ax=plt.figure().add_subplot())
    assert ax.get_xlabel() == "predicted mean"
    segments = np.array(ax.collections[0].get_segments())  # (drawn, 2 ends, x and y)
    expected = dist.mean + np.exp(0.5 * dist.log_variance) * scipy.stats.norm.ppf(0.95)
    found = segments[:, 1, 1]
    order = np.argsort(np.asarray(dist.mean), kind="stable")[::2]  # 100 of 200 fit
    np.testing.assert_allclose(found, np.asarray(expected)[order], rtol=1e-5)
    ax = plots.plot_fit(dist, rows, feature=1, ax=plt.figure().add_subplot())
    assert ax.get_xlabel() == "input 1"
    assert np.isin(ax.lines[-1].get_xdata(), rows[:, 1]).all()


def test_errors_name_the_argument_and_the_fix(points):
    dist, inputs, targets = points
    two = Gaussian(jnp.zeros((5, 2)), jnp.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"`dist` must hold the predictions of one target"):
        plots.plot_fit(two, np.zeros(5))
    with pytest.raises(ValueError, match=r"`inputs` must hold one number per prediction"):
        plots.plot_fit(dist, np.zeros((100, 2)))
    with pytest.raises(ValueError, match=r"`feature` must be the position of one of 2 inputs"):
        plots.plot_fit(dist, np.zeros((200, 2)), feature=2)
    with pytest.raises(ValueError, match=r"`feature` chooses one of several inputs, got 0"):
        plots.plot_fit(dist, inputs, feature=0)
    with pytest.raises(ValueError, match=r"`truth` is a line along one input"):
        plots.plot_fit(dist, np.zeros((200, 2)), truth=inputs)
    with pytest.raises(ValueError, match=r"`truth` must hold one number per prediction"):
        plots.plot_fit(dist, inputs, truth=np.zeros(3))
    with pytest.raises(ValueError, match=r"`targets` must have the shape of the predictions"):
        plots.plot_pit(dist, targets[:5])
    with pytest.raises(ValueError, match=r"`where` leaves no point with a finite target"):
        plots.plot_pit(dist, targets, where=jnp.zeros(200, bool))
    with pytest.raises(ValueError, match=r"`level` must lie strictly between 0 and 1, got 90"):
        plots.plot_intervals(dist, targets, level=90)
    with pytest.raises(ValueError, match=r"`bins` must be a positive integer, got 0"):
        plots.plot_pit(dist, targets, bins=0)
    with pytest.raises(ValueError, match=r"`groups` must be a positive integer, got 0"):
        plots.plot_residuals(dist, targets, groups=0)
