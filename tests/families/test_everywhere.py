"""Every family with every subpackage: units, calibration, metrics, plots, mixtures, files, pickles.

What takes seconds to compile for families whose quantiles are searched for is marked slow, except
for one family each of real numbers, classes and vectors.
"""

import dataclasses
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.machinery.networks import stack_members
from fisher8_jax import plots
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.artifacts import TargetScaler, load_artifact, save_artifact
from fisher8_jax.calibration import IsotonicPIT, SplitConformal, VarianceScaling
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import (
    Bernoulli,
    Beta,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Predictive,
    StudentTLearnedDf,
    VonMises,
)
from fisher8_jax.metrics import evaluate
from tests.families.conformance import QUICK, shifted
from tests.families.table import CASES

EVERY = pytest.mark.parametrize("name", CASES)
QUICK_TO_COMPILE = ("Gaussian", "Categorical", "MultivariateGaussian")
EVERY_SLOWLY = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_TO_COMPILE else pytest.mark.slow)
        for name in CASES
    ],
)

# What has a variance of its own, apart from the families with a shift and a scale.
SPREADS = {"LogNormal", "Gamma", "Weibull", "Beta", "NegativeBinomial"}
JOINT = {"MultivariateGaussian", "LowRankGaussian"}


def case_of(name):
    case = CASES[name]
    return jax.tree.map(jnp.asarray, case.dist), jnp.asarray(case.targets)


def scaler_for(dist):
    shape = dist.event_shape
    shift = np.full(shape, 1.5) if "shift" in dist.units else None
    return TargetScaler(shift, np.full(shape, 2.0 if "scale" in dist.units else 1.0))


def has_variance_scaling(dist, name):
    return name not in JOINT and (dist.units == "shift and scale" or name in SPREADS)


@functools.cache
def answers(name):
    """All that a family is asked elsewhere, in one compiled program."""
    dist, y = case_of(name)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def ask(dist, y):
        flat = dist.marginals()
        record = evaluate(flat, y, levels=(0.9,))
        mixture = Mixture(stack_members([dist, shifted(dist), dist]))
        asked = {
            "own": {"nll": dist.nll(y), "cdf": dist.cdf(y), "mean": dist.mean}
            | {"std": dist.std, "variance": dist.variance},
            "record": record,
            "conformal": SplitConformal.fit(flat, y, levels=(0.5,)).apply(flat),
            "interval": dist.interval(0.5),
            "quantiles": [dist.quantile(jnp.full(y.shape, p)) for p in (0.25, 0.75)],
            "mixture": {
                "nll": mixture.nll(y),
                "nlls": jax.vmap(lambda d: d.nll(y))(mixture.members),
                "cdf": mixture.cdf(y),
                "cdfs": jax.vmap(lambda d: d.cdf(y))(mixture.members),
                "one": mixture[1].nll(y[1]),
                "std": mixture.std,
            },
        }
        if dist.units != "none":
            back = scaler_for(dist).unscale(dist)
            in_units = scaler_for(dist).inverse_transform(y)
            asked["units"] = {"nll": back.nll(in_units), "cdf": back.cdf(in_units)}
            asked["units"]["moments"] = (back.mean, back.std)
        if has_variance_scaling(dist, name):
            wider = VarianceScaling(jnp.full(dist.batch_shape, 1.2)).apply(dist)
            asked["wider"] = (wider.mean, wider.variance)
        return asked

    return dist, y, ask(dist, y)


@EVERY
def test_evaluation_scores_every_coordinate(name):
    dist, y, got = answers(name)
    record = got["record"]
    assert np.all(np.asarray(record.non_finite) == 0)
    for field in (record.rmse, record.nll, record.crps, record.sharpness, record.coverage):
        assert np.isfinite(field).all()
    assert "CRPS" in repr(record)
    assert "<td>CRPS</td>" in record._repr_html_()
    if dist.event_shape:
        with pytest.raises(ValueError, match=r"`dist.marginals\(\)`"):
            evaluate(dist, y)


@EVERY
def test_intervals_are_quantiles(name):
    _, _, got = answers(name)
    for end, quantile in zip(got["interval"], got["quantiles"], strict=True):
        np.testing.assert_allclose(end, quantile, rtol=1e-12)
    interval = got["conformal"]
    assert np.all(interval.upper >= interval.lower)


@EVERY
def test_target_scaler_goes_there_and_back(name):
    dist, _, got = answers(name)
    if dist.units == "none":
        with pytest.raises(TypeError, match=r"cannot be brought to other units\. \w+"):
            scaler_for(dist).unscale(dist)
        return
    shift, scale = (word in dist.units for word in ("shift", "scale"))
    shift, scale = 1.5 if shift else 0.0, 2.0 if scale else 1.0
    # A density per unit is smaller by the scale of every coordinate.
    size = max(1, int(np.prod(dist.event_shape)))
    own = jax.tree.map(np.asarray, got["own"])
    np.testing.assert_allclose(got["units"]["nll"], own["nll"] + size * np.log(scale), rtol=1e-9)
    np.testing.assert_allclose(got["units"]["cdf"], own["cdf"], rtol=1e-9)
    mean, std = got["units"]["moments"]
    np.testing.assert_allclose(mean, scale * own["mean"] + shift, rtol=1e-9)
    np.testing.assert_allclose(std, scale * own["std"], rtol=1e-9)
    if dist.units == "scale":
        with pytest.raises(ValueError, match=r"`shift` must be None .* shift=False"):
            TargetScaler(np.array(1.5), np.array(2.0)).unscale(dist)
    if dist.units == "shift":
        with pytest.raises(ValueError, match=r"`scale` must be None for angles"):
            TargetScaler(np.array(1.5), np.array(2.0)).unscale(dist)


@EVERY
def test_a_family_knows_its_targets_and_its_variance(name):
    dist, y = case_of(name)
    family = type(dist)
    assert family.outside_support(np.asarray(y)) is None
    assert np.all(dist.in_support(y))
    wrong = np.array(y, float).reshape(-1)
    wrong[1] = np.nan
    assert "got 1 of" in family.outside_support(wrong)
    assert family.outside_support(wrong, where=np.arange(wrong.size) != 1) is None
    assert Mixture(stack_members([dist, dist])).is_ordered == dist.is_ordered
    if family.variance_field is not None:
        field, slope = family.variance_field
        changed = {field: getattr(dist, field) + slope * np.log(1.7)}
        wider = dataclasses.replace(dist, **changed)
        np.testing.assert_array_equal(wider.mean, dist.mean)
        np.testing.assert_allclose(wider.variance, 1.7 * dist.variance, rtol=1e-12)


def test_a_family_knows_where_a_head_starts():
    """At the mean of the targets, wherever 0 would be far from it."""
    mean = np.array([0.02, 0.4])
    for family in (Poisson, NegativeBinomial, Beta, Bernoulli):
        start = family.initial_fields(mean)
        others = {name: np.zeros(2) for name in array_fields(family) if name not in start}
        np.testing.assert_allclose(family(**start, **others).mean, mean, rtol=1e-12)
    assert all(np.isfinite(Poisson.initial_fields(np.zeros(1))["log_rate"]))
    assert all(np.isfinite(Bernoulli.initial_fields(np.ones(1))["logit"]))
    assert Gaussian.initial_fields(mean) == {}
    np.testing.assert_allclose(
        np.exp(StudentTLearnedDf.initial_fields(mean)["log_df"]), [5, 5], rtol=1e-12
    )


def test_angles_are_wrapped_and_other_values_are_not():
    wrapped = VonMises.wrap(np.array([0.5, 3.5, -9.0]))
    np.testing.assert_allclose(wrapped, [0.5, 3.5 - 2 * np.pi, -9 + 2 * np.pi])
    np.testing.assert_array_equal(Gaussian.wrap(np.array([3.5])), [3.5])


@EVERY
def test_variance_scaling_keeps_the_mean(name):
    dist, _, got = answers(name)
    assert dist.can_scale_variance == has_variance_scaling(dist, name)
    if not has_variance_scaling(dist, name):
        with pytest.raises(TypeError, match=r"variance scaled around its mean\. Use `SplitConf"):
            VarianceScaling(jnp.ones(dist.batch_shape)).apply(dist)
        return
    mean, variance = got["wider"]
    np.testing.assert_allclose(mean, got["own"]["mean"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(variance, 1.2 * np.asarray(got["own"]["variance"]), rtol=1e-8)


@EVERY
def test_isotonic_map_refuses_what_has_jumps(name):
    dist, y = case_of(name)
    if dist.is_discrete:
        with pytest.raises(TypeError, match=r"needs continuous targets.*SplitConformal"):
            IsotonicPIT.fit(dist, y)


@EVERY_SLOWLY
def test_isotonic_map_recalibrates_what_is_continuous(name):
    dist, y = case_of(name)
    if dist.is_discrete or dist.event_shape:
        return

    @functools.partial(jax.jit, compiler_options=QUICK)
    def recalibrate(dist, y):
        law = IsotonicPIT.fit(dist, y, bins=2).apply(dist)
        return law.quantile(jnp.asarray(0.5)), law.crps(y), law[1].cdf(y[1]), law.cdf(y)

    median, crps, second, cdf = recalibrate(dist, y)
    assert np.isfinite(median).all()
    assert np.all(crps >= 0)
    np.testing.assert_allclose(second, cdf[1], rtol=1e-12)


@EVERY
def test_mixture_of_three_is_the_mean_of_its_members(name):
    _, _, got = answers(name)
    mixture = got["mixture"]
    likelihood = np.exp(-np.asarray(mixture["nlls"])).mean(0)
    np.testing.assert_allclose(np.exp(-mixture["nll"]), likelihood, rtol=1e-9)
    np.testing.assert_allclose(mixture["cdf"], np.asarray(mixture["cdfs"]).mean(0), rtol=1e-9)
    np.testing.assert_allclose(mixture["one"], mixture["nll"][1], rtol=1e-9)
    assert np.isfinite(mixture["std"]).all()


@EVERY_SLOWLY
def test_mixture_of_three_draws_samples_and_inverts_its_cdf(name):
    dist, y = case_of(name)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def ask(dist):
        mixture = Mixture(stack_members([dist, shifted(dist), dist]))
        median = mixture.quantile(jnp.full(y.shape, 0.5))
        return mixture.sample(jax.random.key(0), (3,)), mixture.cdf(median)

    sample, cdf = ask(dist)
    assert sample.shape == (3, *y.shape)
    if dist.is_discrete:
        assert np.all(cdf >= 0.5)
    else:
        np.testing.assert_allclose(cdf, 0.5, atol=1e-6)


@EVERY_SLOWLY
def test_every_plot_draws_one_coordinate(name):
    dist, y = case_of(name)
    if dist.event_shape:
        dist, y = dist.marginals()[:, 0], y[:, 0]
    axes = Figure().subplots(1, 5)
    plots.plot_fit(dist, jnp.arange(4.0), y, ax=axes[0])
    plots.plot_reliability(dist, y, ax=axes[1])
    plots.plot_pit(dist, y, ax=axes[2])
    plots.plot_intervals(dist, y, ax=axes[3])
    plots.plot_residuals(dist, y, groups=2, ax=axes[4])
    for ax in axes:
        assert ax.get_xlabel()
        assert ax.has_data()


@EVERY
def test_files_bring_back_the_same_distribution(name, tmp_path):
    dist, _ = case_of(name)
    save_artifact(tmp_path / "dist.f8", {"dist": dist})
    back = load_artifact(tmp_path / "dist.f8", like={"dist": dist}).trees["dist"]
    assert type(back) is type(dist)
    jax.tree.map(np.testing.assert_array_equal, back, dist)


@EVERY
def test_pickles_bring_back_the_same_distribution(name):
    dist, _ = case_of(name)
    back = pickle.loads(pickle.dumps(dist))
    assert jax.tree.structure(back) == jax.tree.structure(dist)
    jax.tree.map(np.testing.assert_array_equal, back, dist)


@EVERY
def test_indexing_selects_predictions(name):
    dist, _ = case_of(name)
    vector = np.asarray(dist.to_vector())
    grid = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), dist)
    for index in (0, -1, slice(1, 3), None, np.array([2, 0])):
        np.testing.assert_array_equal(dist[index].to_vector(), vector[index])
    np.testing.assert_array_equal(grid[:, 1].to_vector(), vector[1::2])
    assert grid[..., 0].batch_shape == (2,)
    assert dist[np.array([True, False, True, False])].batch_shape == (2,)
    assert [d.batch_shape for d in dist] == [()] * 4
    with pytest.raises(IndexError, match="names 2 axes, but the batch shape is"):
        dist[:, 0]
    with pytest.raises(IndexError, match="Index 4 is out of bounds"):
        dist[4]


@EVERY
def test_repr_is_short_and_html_is_a_table(name):
    dist, _ = case_of(name)
    text, table = repr(dist), dist._repr_html_()
    assert text.startswith(f"{type(dist).__name__}(")
    assert "\n" not in text
    many = jax.tree.map(lambda x: jnp.concatenate([x] * 50), dist)
    assert "float64[200" in repr(many)
    for field in jax.tree_util.tree_leaves_with_path(dist):
        assert f"<td>{field[0][0].name}</td>" in table
    assert "float64[200" in repr(jax.eval_shape(lambda d: d, many))


@EVERY
def test_other_classes_and_shapes_are_refused(name):
    dist, _ = case_of(name)
    narrow = jax.tree.map(lambda x: x[:1], dist)
    for method in (dist.natural, dist.fisher, dist.fisher_norm_sq, dist.kl):
        with pytest.raises(ValueError, match="Nothing is broadcast here"):
            method(narrow)
        with pytest.raises(TypeError, match=f"must be a {type(dist).__name__}, got int"):
            method(1)


@EVERY
@pytest.mark.parametrize("dtype", [jnp.complex64, jnp.bool_, jnp.int32])
def test_parameters_that_are_no_floats_are_refused(name, dtype):
    dist, y = case_of(name)
    wrong = jax.tree.map(lambda x: x.astype(dtype), dist)
    with pytest.raises(TypeError, match="must be a floating-point array, got dtype"):
        wrong.nll(y)
    if dtype != jnp.int32:
        with pytest.raises(TypeError, match="`targets`"):
            dist.nll(y.astype(dtype))


@EVERY
def test_all_are_predictive(name):
    assert isinstance(CASES[name].dist, Predictive)
