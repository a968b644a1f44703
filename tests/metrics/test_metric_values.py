"""Each metric against an implementation that shares no code with it, in float64."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import scoringrules

from fisher8_jax import Gaussian, metrics
from fisher8_jax.families._quadrature import crps_by_quadrature
from tests.metrics.laplace_predictive import Laplace

LEVELS = (0.5, 0.9, 0.99)


def sample(n=400, targets=3, seed=0):
    """Means, standard deviations and targets of a model that is somewhat overconfident."""
    rng = np.random.default_rng(seed)
    mean = 10 * rng.normal(size=(n, targets))
    std = np.exp(rng.normal(size=(n, targets)))
    return mean, std, mean + 1.3 * std * rng.normal(size=(n, targets)) + 0.1


def gaussian(mean, std, dtype=jnp.float64):
    return Gaussian(jnp.asarray(mean, dtype), jnp.asarray(2 * np.log(std), dtype))


def reference(mean, std, y):
    """All metrics of one target by NumPy, SciPy and scoringrules."""
    law = scipy.stats.norm(mean, std)
    z = (y - mean) / std
    shares = np.histogram(law.cdf(y), bins=10, range=(0, 1))[0] / len(y)
    quantile_levels = np.arange(1, 20) / 20
    below = [(y <= law.ppf(p)).mean() for p in quantile_levels]
    ends = [law.interval(level) for level in LEVELS]
    return {
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "mae": np.mean(np.abs(y - mean)),
        "nll": -law.logpdf(y).mean(),
        "crps": scoringrules.crps_normal(y, mean, std).mean(),
        "ece": np.mean([abs(share - 0.1) for share in shares if share > 0]),
        "quantile_calibration_error": np.mean(np.abs(below - quantile_levels)),
        "mean_z_squared": np.mean(z**2),
        "sharpness": np.sqrt(np.mean(std**2)),
        "coverage": [((low <= y) & (y <= high)).mean() for low, high in ends],
        "interval_width": [(high - low).mean() for low, high in ends],
        "interval_score": [
            scoringrules.interval_score(y, low, high, 1 - level).mean()
            for level, (low, high) in zip(LEVELS, ends, strict=True)
        ],
        "pit_histogram": shares,
    }


REFERENCE = {
    name: np.stack([reference(*(a[:, t] for a in sample()))[name] for t in range(3)])
    for name in reference(*(a[:, 0] for a in sample()))
}
METRICS = [name for name in REFERENCE if hasattr(metrics, name)]


@pytest.mark.parametrize("name", METRICS)
def test_metric_equals_reference(name):
    mean, std, y = sample()
    got = jax.jit(getattr(metrics, name))(gaussian(mean, std), jnp.asarray(y))
    np.testing.assert_allclose(got, REFERENCE[name], rtol=1e-11, atol=1e-14)


def test_evaluate_equals_reference_under_jit_and_vmap():
    mean, std, y = sample()
    dist, targets = gaussian(mean, std), jnp.asarray(y)

    def run(dist, targets):
        return metrics.evaluate(dist, targets, levels=LEVELS)

    per_target = jax.vmap(run, in_axes=1)(dist, targets)
    for record in (run(dist, targets), jax.jit(run)(dist, targets), per_target):
        for name, expected in REFERENCE.items():
            np.testing.assert_allclose(
                getattr(record, name), expected, rtol=1e-11, atol=1e-14, err_msg=name
            )
        np.testing.assert_array_equal(record.count, [400, 400, 400])
        np.testing.assert_array_equal(record.non_finite, [0, 0, 0])


def test_nll_without_constant_differs_by_half_log_2pi():
    mean, std, y = sample()
    dist = gaussian(mean, std)
    with_constant = metrics.nll(dist, jnp.asarray(y))
    without = metrics.nll(dist, jnp.asarray(y), constant=False)
    np.testing.assert_allclose(with_constant - without, 0.5 * np.log(2 * np.pi), rtol=1e-12)


def test_crps_of_gaussian_is_the_integral_of_its_definition():
    for z in (-6.0, -1.0, 0.0, 0.3, 4.0):
        below = scipy.integrate.quad(lambda t: scipy.stats.norm.cdf(t) ** 2, -40, z)[0]
        above = scipy.integrate.quad(lambda t: scipy.stats.norm.sf(t) ** 2, z, 40)[0]
        dist = Gaussian(jnp.zeros(1), jnp.zeros(1))
        np.testing.assert_allclose(
            dist.crps(jnp.asarray([z])), below + above, rtol=1e-7, atol=1e-12
        )


def test_crps_by_quadrature_equals_closed_forms():
    mean, std, y = (a[:, 0] for a in sample())
    y[:2] = mean[:2] + np.array([60, -60]) * std[:2]  # the cdf is exactly 1 and about 0
    dist = gaussian(mean, std)
    closed = dist.crps(jnp.asarray(y))
    error = np.abs(crps_by_quadrature(dist, jnp.asarray(y)) - closed) / std
    assert error.max() < 3e-7
    laplace = Laplace(jnp.asarray(mean), jnp.asarray(np.log(std)))
    expected = scoringrules.crps_laplace(y, mean, std)
    error = np.abs(crps_by_quadrature(laplace, jnp.asarray(y)) - expected) / std
    assert error.max() < 7e-6
    record = metrics.evaluate(laplace, jnp.asarray(y))
    np.testing.assert_allclose(record.crps, expected.mean(), rtol=1e-6)


def test_crps_uses_the_method_of_the_distribution():
    class WithCrps(Laplace):
        def crps(self, targets):
            return jnp.full(targets.shape, 7.0)

    jax.tree_util.register_dataclass(WithCrps, ["mean", "log_scale"], [])
    assert metrics.evaluate(WithCrps(jnp.zeros(2), jnp.zeros(2)), jnp.ones(2)).crps == 7


def test_evaluate_takes_a_distribution_that_is_no_family():
    mean, std, y = (a[:, 0] for a in sample())
    record = metrics.evaluate(Laplace(jnp.asarray(mean), jnp.asarray(np.log(std))), jnp.asarray(y))
    law = scipy.stats.laplace(mean, std)
    np.testing.assert_allclose(record.nll, -law.logpdf(y).mean(), rtol=1e-7)
    np.testing.assert_allclose(record.sharpness, np.sqrt(2 * np.mean(std**2)), rtol=1e-7)
    low, high = law.interval(0.9)
    np.testing.assert_allclose(record.coverage[2], ((low <= y) & (y <= high)).mean())
    np.testing.assert_allclose(record.mean_z_squared, np.mean((y - mean) ** 2 / (2 * std**2)))


def test_ece_of_a_calibrated_model_is_its_sampling_noise():
    """The mean of |share - 0.1| of a binomial share is sqrt(2/pi) * 0.3 / sqrt(n)."""
    n, repeats = 2500, 200
    y = jnp.asarray(np.random.default_rng(0).normal(size=(n, repeats)))
    got = jax.jit(metrics.ece)(Gaussian(jnp.zeros_like(y), jnp.zeros_like(y)), y).mean()
    np.testing.assert_allclose(got, 0.2394 / np.sqrt(n), rtol=0.03)


def test_crps_by_quadrature_is_right_in_float32():
    y = jnp.linspace(-9, 9, 301, dtype=jnp.float32)
    dist = Gaussian(jnp.zeros_like(y), jnp.zeros_like(y))
    np.testing.assert_allclose(crps_by_quadrature(dist, y), dist.crps(y), rtol=3e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrow_types_are_scored_in_float32_with_1e5_points(dtype):
    mean, std, y = sample(n=100_000, targets=1)
    dist = gaussian(mean + 1000, std, dtype)
    y = jnp.asarray(y + 1000, dtype)
    # The same rounded numbers, scored in float64.
    exact = metrics.evaluate(jax.tree.map(lambda a: a.astype(jnp.float64), dist), y.astype(float))
    got = metrics.evaluate(dist, y)
    for name in (*REFERENCE, "count", "non_finite"):
        value, expected = getattr(got, name), getattr(exact, name)
        assert value.dtype in (jnp.float32, jnp.int32)
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5, err_msg=name)


class Uniform(Laplace):
    """Its cdf is the target itself, so PIT values can be chosen to the bit."""

    def cdf(self, targets):
        return targets


jax.tree_util.register_dataclass(Uniform, ["mean", "log_scale"], [])


@jax.jit
def _masked_histogram(dist, y, mask):
    return metrics.evaluate(dist, y, where=mask).pit_histogram


@hypothesis.given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40))
@hypothesis.example([0.0, 0.1, 0.2, 0.3, 0.6, 0.7, 0.9, 1.0])
def test_pit_bins_are_those_of_numpy(values):
    y = np.zeros(40)
    y[: len(values)] = values
    mask = np.arange(40) < len(values)
    dist = Uniform(jnp.zeros(40), jnp.zeros(40))
    got = _masked_histogram(dist, jnp.asarray(y), jnp.asarray(mask))
    expected = np.histogram(values, bins=10, range=(0, 1))[0] / len(values)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@hypothesis.given(st.integers(0, 1000), st.floats(-100, 100), st.floats(0.01, 100))
def test_metrics_change_with_the_units_as_they_should(seed, shift, scale):
    mean, std, y = (jnp.asarray(a[:, 0]) for a in sample(n=50, targets=1, seed=seed))
    dist = Gaussian(mean, 2 * jnp.log(std))
    before = metrics.evaluate(dist, y)
    after = metrics.evaluate(dist.unscale(shift, scale), scale * y + shift)
    for name in ("rmse", "mae", "crps", "sharpness", "interval_width", "interval_score"):
        expected = scale * getattr(before, name)
        np.testing.assert_allclose(getattr(after, name), expected, rtol=1e-9)
    for name in ("mean_z_squared", "coverage", "ece"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-9)
    np.testing.assert_allclose(after.nll, before.nll + np.log(scale), rtol=1e-9, atol=1e-9)
