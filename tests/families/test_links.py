"""The published heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax.families.links import (
    latent_gaussian,
    natural_gaussian,
    sever,
    soft_bounded_gaussian,
    soft_bounds_penalty,
)

RNG = np.random.default_rng(6)
A, B, C = 3 * RNG.normal(size=(3, 9))


def softplus(x):
    return np.logaddexp(0, x)


def test_natural_gaussian():
    eta1, eta2 = A, -0.5 * (softplus(B) + 1e-8)
    dist = natural_gaussian(jnp.asarray(A), jnp.asarray(B))
    np.testing.assert_allclose(dist.variance, -1 / (2 * eta2), rtol=1e-12)
    np.testing.assert_allclose(dist.mean, -eta1 / (2 * eta2), rtol=1e-12)


def test_natural_gaussian_at_the_ends_of_float32():
    """The precision is 1e-8 at -1000 and 1e6 at 1e6."""
    raw = jnp.array([-1000.0, 1e6], jnp.float32)
    dist = natural_gaussian(jnp.ones(2, jnp.float32), raw)
    np.testing.assert_allclose(dist.mean, [1e8, 1e-6], rtol=1e-6)
    np.testing.assert_allclose(dist.log_variance, -np.log([1e-8, 1e6]), rtol=1e-6)
    gradient = jax.grad(lambda r: natural_gaussian(jnp.ones(2, r.dtype), r).log_variance.sum())(raw)
    assert np.isfinite(gradient).all()


def test_soft_bounds_as_published():
    low, high = np.array([-5.0, -4.0, -3.0]), np.array([0.5, 1.0, 1.5])
    raw = 4 * RNG.normal(size=(6, 3))
    below = high - softplus(high - raw)
    expected = low + softplus(below - low)
    dist = soft_bounded_gaussian(
        jnp.zeros((6, 3)),
        jnp.asarray(raw),
        min_log_variance=jnp.asarray(low),
        max_log_variance=jnp.asarray(high),
    )
    np.testing.assert_allclose(dist.log_variance, expected, rtol=1e-12)
    assert (expected > low).all()
    assert (expected < high + softplus(low - high)).all()


def test_soft_bounds_learn():
    """Far above the upper bound only that bound is moved, and the penalty pulls it down."""

    def total(low, high):
        dist = soft_bounded_gaussian(
            jnp.zeros(4), jnp.full(4, 50.0), min_log_variance=low, max_log_variance=high
        )
        return dist.log_variance.sum()

    low, high = jnp.array(-50.0), jnp.array(0.5)
    np.testing.assert_allclose(jax.grad(total, (0, 1))(low, high), (0, 4), atol=1e-12)
    by_low, by_high = jax.grad(soft_bounds_penalty, (0, 1))(low, high)
    np.testing.assert_allclose((by_low, by_high), (-0.01, 0.01))


def test_latent_gaussian():
    dist = latent_gaussian(jnp.asarray(A), jnp.asarray(B), jnp.asarray(C))
    diagonal = softplus(C) + 1e-3
    np.testing.assert_allclose(dist.variance, B**2 + diagonal**2, rtol=1e-12)
    np.testing.assert_array_equal(dist.mean, A)
    at_zero = jax.grad(lambda v: latent_gaussian(v, v, v).log_variance.sum())(jnp.zeros(3))
    assert np.isfinite(at_zero).all()


def test_sever_stops_trees():
    tree = {"a": jnp.ones(2), "b": (jnp.zeros(1),)}
    jax.tree.map(np.testing.assert_array_equal, sever(tree), tree)
    gradient = jax.grad(lambda t: jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, sever(t))))(tree)
    jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf, 0), gradient)


LINKS = {
    "natural": natural_gaussian,
    "soft_bounded": lambda mean, raw: soft_bounded_gaussian(
        mean, raw, min_log_variance=-5.0, max_log_variance=1.0
    ),
    "latent": lambda mean, raw: latent_gaussian(mean, raw, raw),
}


@pytest.mark.parametrize("name", LINKS)
def test_transformations_and_dtypes(name):
    link = LINKS[name]
    wide = link(jnp.asarray(A), jnp.asarray(B))
    mapped = jax.jit(jax.vmap(link))(jnp.asarray(A), jnp.asarray(B))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), mapped, wide)
    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.bfloat16, 0.06), (jnp.float16, 0.02)):
        narrow = link(jnp.asarray(A, dtype), jnp.asarray(B, dtype))
        assert narrow.mean.dtype == dtype
        assert narrow.log_variance.dtype == dtype
        for actual, expected in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
            np.testing.assert_allclose(
                actual.astype(jnp.float64), expected, rtol=tolerance, atol=tolerance
            )


def test_bad_input():
    with pytest.raises(ValueError, match=r"`raw_location` \(2,\), `raw_precision` \(3,\)"):
        natural_gaussian(jnp.zeros(2), jnp.zeros(3))
    with pytest.raises(TypeError, match="`raw_precision` must be a floating-point array"):
        natural_gaussian(jnp.zeros(2), jnp.zeros(2, int))
    with pytest.raises(ValueError, match="`min_precision` must be positive, got 0"):
        natural_gaussian(jnp.zeros(2), jnp.zeros(2), min_precision=0)
    with pytest.raises(ValueError, match="`min_diagonal` must be positive, got -1"):
        latent_gaussian(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), min_diagonal=-1)
    bounds = {"min_log_variance": jnp.zeros(4), "max_log_variance": 0.0}
    with pytest.raises(ValueError, match=r"`min_log_variance` must be a scalar.*got \(4,\)"):
        soft_bounded_gaussian(jnp.zeros((4, 3)), jnp.zeros((4, 3)), **bounds)
