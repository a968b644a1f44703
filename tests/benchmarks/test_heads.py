"""The heads that only published baselines have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.machinery.heads import latent, natural

RNG = np.random.default_rng(6)
A, B, C = 3 * RNG.normal(size=(3, 9))


def softplus(x):
    return np.logaddexp(0, x)


def test_natural_parameters():
    eta1, eta2 = A, -0.5 * (softplus(B) + 1e-8)
    dist = natural(jnp.asarray(A), jnp.asarray(B))
    np.testing.assert_allclose(dist.variance, -1 / (2 * eta2), rtol=1e-12)
    np.testing.assert_allclose(dist.mean, -eta1 / (2 * eta2), rtol=1e-12)


def test_natural_parameters_at_the_ends_of_float32():
    """The precision is 1e-8 at -1000 and 1e6 at 1e6."""
    raw = jnp.array([-1000.0, 1e6], jnp.float32)
    dist = natural(jnp.ones(2, jnp.float32), raw)
    np.testing.assert_allclose(dist.mean, [1e8, 1e-6], rtol=1e-6)
    np.testing.assert_allclose(dist.log_variance, -np.log([1e-8, 1e6]), rtol=1e-6)
    gradient = jax.grad(lambda r: natural(jnp.ones(2, r.dtype), r).log_variance.sum())(raw)
    assert np.isfinite(gradient).all()


def test_latent():
    dist = latent(jnp.asarray(A), jnp.asarray(B), jnp.asarray(C))
    diagonal = softplus(C) + 1e-3
    np.testing.assert_allclose(dist.variance, B**2 + diagonal**2, rtol=1e-12)
    np.testing.assert_array_equal(dist.mean, A)
    at_zero = jax.grad(lambda v: latent(v, v, v).log_variance.sum())(jnp.zeros(3))
    assert np.isfinite(at_zero).all()


HEADS = {"natural": natural, "latent": lambda mean, raw: latent(mean, raw, raw)}


@pytest.mark.parametrize("name", HEADS)
def test_transformations_and_dtypes(name):
    link = HEADS[name]
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
