"""Shares of the gradient against formulas written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import top_gradient_share


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 230))  # mean, log-variance, targets


def written_out(mean, log_variance, targets, natural):
    """The gradients of the paper's section 3."""
    residual, z_squared = mean - targets, (targets - mean) ** 2 * np.exp(-log_variance)
    if natural:
        return residual, 1 - z_squared
    return residual * np.exp(-log_variance), 0.5 - 0.5 * z_squared


def share_of_top(gradient, number):
    largest_first = np.sort(np.abs(gradient))[::-1]
    return largest_first[:number].sum() / largest_first.sum()


@pytest.mark.parametrize("natural", [False, True])
def test_shares_equal_the_formulas(points, natural):
    mean, log_variance, targets = points
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    of_mean, of_scale = written_out(mean, log_variance, targets, natural)
    shares = top_gradient_share(dist, targets, share=0.05, natural=natural)
    np.testing.assert_allclose(shares["mean"], share_of_top(of_mean, 12), rtol=1e-12)
    np.testing.assert_allclose(shares["log_variance"], share_of_top(of_scale, 12), rtol=1e-12)


def test_figure_for_a_calibrated_gaussian():
    # Quantiles instead of random targets; the share is 2 pdf(2.576) / E|z| = 0.0362.
    targets = scipy.stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    dist = Gaussian(jnp.zeros(100_000), jnp.zeros(100_000))
    expected = 2 * scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.995)) / np.sqrt(2 / np.pi)
    np.testing.assert_allclose(top_gradient_share(dist, targets)["mean"], expected, rtol=1e-3)


def test_masked_points_count_nowhere(points):
    where = np.arange(230) < 200
    mean, log_variance, targets = points
    kept = Gaussian(jnp.asarray(mean[:200]), jnp.asarray(log_variance[:200]))
    targets_with_nan = jnp.asarray(np.where(where, targets, np.nan))
    dist, mask = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance)), jnp.asarray(where)
    for natural in (False, True):
        found = top_gradient_share(dist, targets_with_nan, natural=natural, where=mask)
        expected = top_gradient_share(kept, jnp.asarray(targets[:200]), natural=natural)
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-12)


def test_points_with_several_targets_are_measured_by_their_norm():
    rng = np.random.default_rng(1)
    mean, log_variance, targets = rng.normal(size=(3, 50, 4))
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    of_mean, _ = written_out(mean, log_variance, targets, natural=False)
    expected = share_of_top(np.linalg.norm(of_mean, axis=1), 5)
    found = top_gradient_share(dist, targets, share=0.1)["mean"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_natural_shares_survive_tiny_variances(dtype):
    dist = Gaussian(jnp.zeros(4, dtype), jnp.full(4, -150, dtype))
    targets = jnp.array([1, 1, 1, 5], dtype)
    shares = top_gradient_share(dist, targets, natural=True)
    np.testing.assert_allclose(shares["mean"], 5 / 8, rtol=1e-6)
    np.testing.assert_allclose(shares["log_variance"], 25 / 28, rtol=1e-5)
    assert shares["mean"].dtype == jnp.float32


def test_jit_and_vmap(points):
    mean, log_variance, targets = (jnp.asarray(p) for p in points)

    @jax.jit
    @jax.vmap
    def shares(shift):
        dist = Gaussian(mean + shift, log_variance)
        return top_gradient_share(dist, targets)["mean"]

    share = shares(jnp.array([0.0, 1.0]))
    dist = Gaussian(mean + 1.0, log_variance)
    np.testing.assert_allclose(share[1], top_gradient_share(dist, targets)["mean"], rtol=1e-12)


def test_errors_name_the_argument_and_the_fix():
    dist = Gaussian(jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"`share` must be above 0 and at most 1, got 1.5"):
        top_gradient_share(dist, jnp.zeros(3), share=1.5)
    with pytest.raises(ValueError, match="`targets` must have the shape of the predictions"):
        top_gradient_share(dist, jnp.zeros((3, 1)))
    with pytest.raises(TypeError, match="`dist` must be a distribution"):
        top_gradient_share(jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(TypeError, match="`where` must be boolean"):
        top_gradient_share(dist, jnp.zeros(3), where=jnp.ones(3))
