"""How wide predictions among the data are: the formulas by simulation, followed through all."""

import numpy as np
import pytest
from scipy import integrate, stats

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import ArtifactError, TargetScaler
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._calibration import calibrate, find_spread, narrow
from fisher8_jax.estimator._conformal import conformal_of
from fisher8_jax.estimator._epistemic import Knowledge
from fisher8_jax.estimator._memory import Memory
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.estimator._training import Rows
from fisher8_jax.estimator._widths import Calibration
from tests.estimator.methods import RADIUS

SETTINGS = {
    "methods": RADIUS,
    "n_members": 3,
    "hidden_layer_sizes": (8,),
    "max_steps": 300,
    "random_state": 0,
}
UNIT = TargetScaler(np.array(0.0), np.array(1.0))
FAMILIAR = (  # every row is as well known as can be
    Knowledge(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.ones(1), np.ones(1)),
    np.zeros((1, 5)),
)


def make_table(rows=120, targets=None):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (rows, 2))
    noise = rng.normal(size=(rows, targets or 1)) * np.array([1.0, 0.05])[: targets or 1]
    values = 5 + np.sin(3 * inputs[:, :1]) + noise
    return inputs, values if targets else values[:, 0]


def fit(targets=None, **settings):
    return Fisher8Regressor(**SETTINGS | settings).fit(*make_table(targets=targets))


def constant_members(centers, log_variance=0.0):
    """A network without layers, and members that predict one number everywhere."""
    bias = np.stack([centers, np.full(len(centers), log_variance)], axis=1).astype(np.float32)
    network = DenseNetwork((), link_of(Gaussian), ())
    return network, [{"kernel": np.zeros((len(centers), 1, 2), np.float32), "bias": bias}]


def memory_of(targets, weights=None):
    """Rows of which each is held out by one of two runs."""
    targets = np.asarray(targets, np.float64)
    number = len(targets)
    rows = Rows(
        np.zeros((number, 1), np.float32),
        targets,
        np.isfinite(targets),
        np.ones(number) if weights is None else np.asarray(weights, np.float64),
    )
    return Memory(rows, np.zeros(number), np.arange(number).reshape(2, -1))


@pytest.mark.parametrize("share", [0.05, 0.2, 0.35])
def test_the_mixture_is_as_wide_as_its_errors(share):
    """Members with errors of their own, each of which knows how large its error is."""
    rng = np.random.default_rng(0)
    rows, members = 200_000, 5
    own = np.sqrt(share) * rng.normal(size=(members, rows))
    targets = np.sqrt(1 - share) * rng.normal(size=rows)  # every member's variance is 1
    disagreement = np.mean(own.var(axis=0))
    factor, closeness = narrow(disagreement, 0.0)
    variance = factor + closeness**2 * disagreement
    error = np.mean((targets - own.mean(axis=0)) ** 2)
    np.testing.assert_allclose(variance, error, rtol=0.01)
    assert factor >= 0.5 * (1 - disagreement) - 1e-12


def test_the_factor_grows_where_rows_are_unfamiliar():
    near, far = narrow(0.1, 0.0), narrow(0.1, 0.5)
    assert near == (pytest.approx(0.8), 1.0)
    assert far == (pytest.approx(0.6), 1.0)  # half of the narrowing is left on an average row
    assert narrow(0.0, 0.3) == (1.0, 1.0)
    most = narrow(1.0, 0.9)
    assert most[0] == pytest.approx(0.3)
    assert most[1] == pytest.approx(np.sqrt(0.3 / 0.4))


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.0, 1e3])
def test_disagreement_is_measured_between_those_that_held_out_and_all(distance):
    network, params = constant_members([-distance, distance])
    memory = memory_of(np.linspace(-1, 1, 8))
    found = calibrate(network, Gaussian, params, memory, UNIT, FAMILIAR)
    expected = narrow(min(distance**2, 3), 0.0)
    np.testing.assert_allclose([found.factor[0], found.closeness[0]], expected, rtol=1e-6)


def test_rows_without_anything_in_common_do_not_speak_for_all():
    """One row of 24 on which the members lie far apart counts as three, not as a thousand."""
    network, params = constant_members([0.0, 0.0])
    params[0]["kernel"][:, 0, 0] = -1e3, 1e3
    memory = memory_of(np.zeros(24), weights=np.ones(24))
    memory.rows.inputs[3] = 1
    found = calibrate(network, Gaussian, params, memory, UNIT, FAMILIAR)
    assert found.factor[0] == pytest.approx(0.75)  # 1 / 24 of the weight: 1 - 2 * 3 / 24
    memory.rows.weights[3] = 1e-9
    found = calibrate(network, Gaussian, params, memory, UNIT, FAMILIAR)
    assert found.factor[0] == pytest.approx(1)


def test_missing_targets_and_rows_without_weight_do_not_count():
    network, params = constant_members([-0.3, 0.3])
    targets = np.tile([0.1, 30.0, np.nan, -0.1], 20)
    weights = np.tile([1.0, 0.0, 1.0, 1.0], 20)
    found = calibrate(network, Gaussian, params, memory_of(targets, weights), UNIT, FAMILIAR)
    kept = calibrate(network, Gaussian, params, memory_of([0.1, -0.1] * 20), UNIT, FAMILIAR)
    for one, other in zip(found, kept, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_errors_with_heavy_tails_spread_the_widths_and_normal_ones_do_not():
    rng = np.random.default_rng(0)
    weights = np.ones(1000)
    assert find_spread(rng.normal(size=1000), weights) == 0
    assert find_spread(1.3 * rng.normal(size=1000), weights) == 0  # their size is left open
    heavy = stats.t(3).rvs(size=1000, random_state=0)
    assert find_spread(heavy, weights) > 0.5
    assert find_spread(heavy[:5], weights[:5]) == 0  # too few to say so
    assert find_spread(np.array([]), np.array([])) == 0


@pytest.mark.parametrize("weight", [1.0, 100.0])  # only ratios of weights matter
def test_the_spread_is_that_of_the_highest_likelihood(weight):
    """The density by quadrature over an own grid of spreads and sizes."""
    errors = stats.t(4).rvs(size=400, random_state=1)
    found = find_spread(errors, np.full(400, weight))
    nodes = stats.norm.ppf([0.125, 0.375, 0.625, 0.875])
    everything = np.concatenate([errors, stats.norm.ppf((np.arange(31) + 0.5) / 31)])
    counts = np.r_[np.ones(400), np.full(31, 30 / 31)]

    def nll(spread, log_scale):
        variances = np.exp(spread * nodes)
        deviations = np.sqrt(np.exp(log_scale) * variances / variances.mean())
        density = np.mean([stats.norm(0, d).pdf(everything) for d in deviations], axis=0)
        return -np.sum(counts * np.log(density))

    best = min(nll(found, size) for size in np.arange(-1, 1.01, 0.1))
    for other in (found - 0.2, found + 0.2):
        assert best < min(nll(other, size) for size in np.arange(-1, 1.01, 0.1))


@pytest.mark.parametrize("family", ["gaussian", "student_t", "laplace"])
@pytest.mark.parametrize("targets", [None, 2])
def test_predictions_are_the_members_with_the_calibration(targets, family):
    inputs, _ = make_table()
    plain, model = (fit(targets, family=family, shrink_variance=flag) for flag in (False, True))
    assert np.all(plain.variance_factor_ == 1)
    assert np.all(model.variance_factor_ < 1)
    np.testing.assert_allclose(model.predict(inputs), plain.predict(inputs), rtol=1e-6)
    noise, disagreement = plain.predict_uncertainty(inputs)
    less, more = model.predict_uncertainty(inputs)
    ratio, factor = less / noise, model.variance_factor_
    assert np.all(ratio > factor - 1e-5)  # least where all is known
    assert np.all(ratio < 1)
    # Far from the data the members are left as they are, but for the largest scale.
    far = inputs + 1e3
    plain.calibration_ = plain.calibration_._replace(ceiling=model.calibration_.ceiling)
    np.testing.assert_allclose(
        model.predict_uncertainty(far)[0], plain.predict_uncertainty(far)[0], rtol=0.2
    )
    added = more - model.calibration_.closeness**2 * disagreement
    assert np.all(added > -1e-6)
    np.testing.assert_allclose(model.calibration_.tails.mean(axis=0), 1, rtol=1e-6)


def test_tails_keep_the_variance_and_integrate_to_one():
    inputs, _ = make_table()
    model = fit()
    mean, std = model.predict(inputs[:1], return_std=True)
    model.calibration_ = model.calibration_._replace(
        tails=np.array([[0.2], [0.6], [1.0], [2.2]], np.float32)
    )
    again, same = model.predict(inputs[:1], return_std=True)
    np.testing.assert_allclose(again, mean, rtol=1e-5)
    np.testing.assert_allclose(same, std, rtol=1e-5)
    grid = np.linspace(mean[0] - 12 * std[0], mean[0] + 12 * std[0], 4001)
    density = np.exp(-model.nll(np.repeat(inputs[:1], 4001, 0), grid))
    assert integrate.simpson(density, x=grid) == pytest.approx(1, abs=1e-4)
    variance = integrate.simpson(density * (grid - mean[0]) ** 2, x=grid)
    assert variance == pytest.approx(std[0] ** 2, rel=1e-3)


@pytest.mark.parametrize("targets", [None, 2])
def test_no_member_is_less_certain_than_the_range_of_the_targets(targets):
    inputs, values = make_table(targets=targets)
    model = fit(targets)
    widest = np.exp(model.calibration_.ceiling) * model.scaler_.scale
    np.testing.assert_allclose(widest, np.ptp(values, axis=0), rtol=1e-6)
    raised = model.params_[-1]["bias"].copy()
    raised[:, raised.shape[1] // 2 :] += 200  # log-variances, whose exponential overflows
    model.params_[-1]["bias"] = raised
    aleatoric, _ = model.predict_uncertainty(inputs)
    assert np.all((0.4 * widest < np.sqrt(aleatoric)) & (np.sqrt(aleatoric) < 1.001 * widest))
    low, high = model.predict_interval(inputs, method="conformal")
    assert np.isfinite(high - low).all()


def test_a_weight_of_zero_is_no_row():
    inputs, targets = make_table()
    weights = np.ones(len(targets))
    weights[::2] = 0
    weighed = Fisher8Regressor(**SETTINGS).fit(inputs, targets, weights)
    half = Fisher8Regressor(**SETTINGS).fit(inputs[1::2], targets[1::2])
    np.testing.assert_array_equal(weighed.variance_factor_, half.variance_factor_)


@pytest.mark.parametrize("settings", [{"n_members": 1}, {"family": "gamma"}])
def test_one_member_and_other_likelihoods_keep_their_variances(settings):
    assert fit(**settings).variance_factor_ == 1


def test_more_training_begins_with_the_members_as_they_were():
    inputs, targets = make_table()
    plain, model = fit(shrink_variance=False), fit()
    before = model.variance_factor_
    for one in (plain, model):
        one.partial_fit(inputs[:60], targets[:60])
    np.testing.assert_allclose(model.predict(inputs), plain.predict(inputs), rtol=1e-4)
    np.testing.assert_allclose(model.held_out_nll_, plain.held_out_nll_, rtol=1e-3)
    assert model.variance_factor_ != before


def test_a_file_keeps_the_calibration(tmp_path):
    model = fit(targets=2)
    model.save(tmp_path / "model.f8")
    loaded = Fisher8Regressor.load(tmp_path / "model.f8")
    np.testing.assert_array_equal(loaded.variance_factor_, model.variance_factor_)
    for one, other in zip(loaded.calibration_, model.calibration_, strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.shrink_variance


@pytest.mark.parametrize(
    "wrong",
    [
        {"factor": np.ones(3, np.float32)},
        {"factor": np.array([1, 0], np.float32)},
        {"factor": np.array([1, np.nan], np.float32)},
        {"closeness": np.ones((2, 1), np.float32)},
        {"tails": np.zeros((0, 2), np.float32)},
        {"tails": np.full((4, 2), -1, np.float32)},
        {"tails": np.ones((4, 2))},
        {"ceiling": np.array([1, np.inf], np.float32)},
    ],
)
def test_a_file_with_another_calibration_is_refused(tmp_path, wrong):
    model = fit(targets=2, max_steps=20)
    model.conformal_ = conformal_of(model)
    model.calibration_ = Calibration.none(2)._replace(**wrong)
    model.save(tmp_path / "model.f8")
    with pytest.raises(ArtifactError, match="calibration"):
        Fisher8Regressor.load(tmp_path / "model.f8")
