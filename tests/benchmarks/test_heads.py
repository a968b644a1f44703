"""The heads that only published baselines have."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.heads import latent

RNG = np.random.default_rng(6)
A, B, C = 3 * RNG.normal(size=(3, 9))


def softplus(x):
    return np.logaddexp(0, x)


def test_latent():
    dist = latent(jnp.asarray(A), jnp.asarray(B), jnp.asarray(C))
    diagonal = softplus(C) + 1e-3
    np.testing.assert_allclose(dist.variance, B**2 + diagonal**2, rtol=1e-12)
    np.testing.assert_array_equal(dist.mean, A)
    at_zero = jax.grad(lambda v: latent(v, v, v).log_variance.sum())(jnp.zeros(3))
    assert np.isfinite(at_zero).all()


def test_transformations_and_dtypes():
    def link(mean, raw):
        return latent(mean, raw, raw)

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
