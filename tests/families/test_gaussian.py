"""The Gaussian against SciPy."""

import jax.numpy as jnp
import numpy as np
import scipy.stats

from fisher8_jax import Gaussian


def test_nll_equals_scipy():
    rng = np.random.default_rng(0)
    mean, log_variance, targets = rng.normal(size=(3, 50))
    expected = -scipy.stats.norm(mean, np.exp(log_variance / 2)).logpdf(targets)
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    np.testing.assert_allclose(dist.nll(jnp.asarray(targets)), expected, rtol=1e-12)
