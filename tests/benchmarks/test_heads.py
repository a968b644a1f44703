"""The heads that only published baselines have."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.heads import latent
from tests.families.links import check_transformations_and_dtypes

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
    check_transformations_and_dtypes(lambda mean, raw: latent(mean, raw, raw), A, B)
