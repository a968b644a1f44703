"""The study of the forecaster: its losses, the choice of a rate, the picture of curves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.forecaster import jobs
from benchmarks.experiments.forecaster.plan import METHODS, RATES
from benchmarks.experiments.forecaster.report import choose
from benchmarks.machinery import learning_curves
from examples import forecaster
from fisher8_jax import Gaussian

SERIES = jax.tree.map(jnp.asarray, forecaster.make_series(0, 4))


def gradient(name, dist, series=SERIES):
    return jax.grad(lambda dist: jobs.loss(METHODS[name], dist, series))(dist)


@pytest.fixture
def dist():
    shape = (4, forecaster.LENGTH - 1)
    rng = np.random.default_rng(0)
    return Gaussian(*(jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(2)))


@pytest.mark.parametrize("name", METHODS)
def test_what_was_not_seen_has_no_gradient(name, dist):
    is_seen = forecaster.targets_of(SERIES)[1]
    for part in jax.tree.leaves(gradient(name, dist)):
        assert not part[~is_seen].any()
        assert part[is_seen].all()


def test_the_methods_are_fisher8_in_parts(dist):
    """Natural residuals of a Gaussian: target minus mean, and 1 - z^2 for the log-variance."""
    targets, is_seen = forecaster.targets_of(SERIES)
    residual = np.where(is_seen, dist.mean - targets, 0.0)
    z_squared = np.square(targets - dist.mean) * np.exp(-dist.log_variance)
    excess = np.where(is_seen, 1 - z_squared, 0.0)
    full, without_norms = gradient("fisher8", dist), gradient("natural", dist)
    for part, expected in zip(jax.tree.leaves(full), (residual, excess), strict=True):
        np.testing.assert_allclose(
            part / np.linalg.norm(part), expected / np.linalg.norm(expected), atol=1e-5
        )
    assert np.linalg.norm(full.mean) == pytest.approx(np.linalg.norm(full.log_variance), rel=1e-5)
    scale = np.linalg.norm(without_norms.mean) / np.linalg.norm(residual)
    np.testing.assert_allclose(without_norms.log_variance, scale * excess, rtol=1e-4, atol=1e-6)
    tenth = gradient("fisher8_tenth", dist)
    np.testing.assert_allclose(tenth.log_variance, 0.1 * full.log_variance, rtol=1e-5)


def test_with_a_network_for_each_output_the_first_predicts_the_mean():
    predict = jobs.two_networks(lambda params, x: Gaussian(params * x, -params * x))
    dist = predict([2.0, 3.0], jnp.ones(2))
    np.testing.assert_array_equal(dist.mean, [2, 2])
    np.testing.assert_array_equal(dist.log_variance, [-3, -3])


@pytest.mark.parametrize("swing", [0.0, 1.5])
def test_the_noise_goes_up_and_down_with_the_clock_as_asked(swing):
    values, clock = forecaster.make_series(0, 4000, swing)
    smooth = forecaster.make_series(0, 4000, -30.0)[0]  # nearly without noise where the clock is 1
    for low, high in ((0.95, 1.0), (0.5, 0.55)):
        chosen = (clock > low) & (clock < high) & np.isfinite(values)
        expected = np.exp(-2.5 + swing * (low + high) / 2)
        assert np.std((values - smooth)[chosen]) == pytest.approx(expected, rel=0.06)


def test_the_rate_is_chosen_by_held_out_series_after_the_last_step():
    shape = (2, len(RATES), 3)
    validation = np.full(shape, 5.0)
    validation[:, 2] = [9.0, 9.0, 1.0]
    validation[:, 4] = [0.0, 0.0, 2.0]
    validation[0, 5, -1] = np.nan
    test = np.arange(np.prod(shape), dtype=float).reshape(shape)
    runs = {f"test_{name}": test for name in ("nll", "crps", "rmse")}
    found = choose({**runs, "validation_nll": validation, "seconds": 1.0}, RATES)
    assert found.rate == RATES[2]
    np.testing.assert_array_equal(found.scores["nll"], test[:, 2, -1])
    np.testing.assert_array_equal(found.curve, test[:, 2])


def test_the_axis_holds_scores_but_not_the_worst_method():
    share = np.arange(1, 11) / 10
    usual = [
        learning_curves.Curve(share, np.linspace(9, low, 10)[None], np.array([low, low + 0.1]))
        for low in (0.0, 0.2, 0.3, 0.4)
    ]
    for worst in (1e6, np.inf):
        other = learning_curves.Curve(share, np.full((1, 10), worst), np.array([worst]))
        low, high = learning_curves._limits([*usual, other])
        assert low < 0 < 0.5 < high < 20
