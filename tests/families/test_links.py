"""The published heads: natural parameters, log-variances between learned bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from tests.families.links import check_transformations_and_dtypes

RNG = np.random.default_rng(6)
A, B = 3 * RNG.normal(size=(2, 9))


def softplus(x):
    return np.logaddexp(0, x)


def test_natural_parameters():
    eta1, eta2 = A, -0.5 * (softplus(B) + 1e-8)
    dist = Gaussian.from_natural(jnp.asarray(A), jnp.asarray(B))
    np.testing.assert_allclose(dist.variance, -1 / (2 * eta2), rtol=1e-12)
    np.testing.assert_allclose(dist.mean, -eta1 / (2 * eta2), rtol=1e-12)


def test_natural_parameters_at_the_ends_of_float32():
    """The precision is 1e-8 at -1000 and 1e6 at 1e6."""
    raw = jnp.array([-1000.0, 1e6], jnp.float32)
    dist = Gaussian.from_natural(jnp.ones(2, jnp.float32), raw)
    np.testing.assert_allclose(dist.mean, [1e8, 1e-6], rtol=1e-6)
    np.testing.assert_allclose(dist.log_variance, -np.log([1e-8, 1e6]), rtol=1e-6)
    gradient = jax.grad(
        lambda r: Gaussian.from_natural(jnp.ones(2, r.dtype), r).log_variance.sum()
    )(raw)
    assert np.isfinite(gradient).all()


def test_soft_bounds_as_published():
    low, high = np.array([-5.0, -4.0, -3.0]), np.array([0.5, 1.0, 1.5])
    raw = 4 * RNG.normal(size=(6, 3))
    below = high - softplus(high - raw)
    expected = low + softplus(below - low)
    dist = Gaussian.from_soft_bounds(
        jnp.zeros((6, 3)),
        jnp.asarray(raw),
        min_log_variance=jnp.asarray(low),
        max_log_variance=jnp.asarray(high),
    )
    np.testing.assert_allclose(dist.log_variance, expected, rtol=1e-12)
    assert (expected > low).all()
    assert (expected < high + softplus(low - high)).all()


def test_soft_bounds_learn():
    """Far above the upper bound only that bound is moved."""

    def total(low, high):
        dist = Gaussian.from_soft_bounds(
            jnp.zeros(4), jnp.full(4, 50.0), min_log_variance=low, max_log_variance=high
        )
        return dist.log_variance.sum()

    low, high = jnp.array(-50.0), jnp.array(0.5)
    np.testing.assert_allclose(jax.grad(total, (0, 1))(low, high), (0, 4), atol=1e-12)


def bounded(mean, raw):
    return Gaussian.from_soft_bounds(mean, raw, min_log_variance=-5.0, max_log_variance=1.0)


@pytest.mark.parametrize("link", [Gaussian.from_natural, bounded])
def test_transformations_and_dtypes(link):
    check_transformations_and_dtypes(link, A, B)


def test_bad_input():
    with pytest.raises(ValueError, match=r"`location` \(2,\), `raw` \(3,\)"):
        Gaussian.from_natural(jnp.zeros(2), jnp.zeros(3))
    with pytest.raises(TypeError, match="`raw` must be a floating-point array"):
        Gaussian.from_natural(jnp.zeros(2), jnp.zeros(2, int))
    with pytest.raises(ValueError, match="`min_precision` must be positive, got 0"):
        Gaussian.from_natural(jnp.zeros(2), jnp.zeros(2), min_precision=0)
    with pytest.raises(ValueError, match=r"`mean` \(2,\), `raw` \(3,\)"):
        Gaussian.from_soft_bounds(
            jnp.zeros(2), jnp.zeros(3), min_log_variance=0.0, max_log_variance=1.0
        )
    bounds = {"min_log_variance": jnp.zeros(4), "max_log_variance": 0.0}
    with pytest.raises(ValueError, match=r"`min_log_variance` must be a scalar.*got \(4,\)"):
        Gaussian.from_soft_bounds(jnp.zeros((4, 3)), jnp.zeros((4, 3)), **bounds)
