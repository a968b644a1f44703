"""The study of the two norms: what is multiplied, and how a rate is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.norm_ratio.jobs import scaled
from benchmarks.experiments.norm_ratio.plan import CHOOSING, REPORTING
from benchmarks.experiments.norm_ratio.report import best_rate
from fisher8_jax import Gaussian, fisher8

TARGETS = jnp.array([1.0, -2.0, 0.5])
DIST = Gaussian(jnp.zeros(3), jnp.array([0.1, 0.2, -0.3]))


def gradient(change):
    return jax.grad(lambda dist: change(dist).nll(TARGETS).sum())(DIST)


def test_only_the_log_variance_is_multiplied():
    equal, other = gradient(fisher8), gradient(lambda d: scaled(d, jnp.array(0.3), TARGETS))
    np.testing.assert_allclose(other.mean, equal.mean)
    np.testing.assert_allclose(other.log_variance, 0.3 * equal.log_variance, rtol=1e-6)


def test_the_ratio_of_the_batch_is_that_of_the_lengths_in_nats():
    z = np.asarray((TARGETS - DIST.mean) * jnp.exp(-DIST.log_variance / 2))
    own = np.sqrt(np.mean((1 - z**2) ** 2 / 2) / np.mean(z**2))
    equal, other = gradient(fisher8), gradient(lambda d: scaled(d, jnp.array(jnp.nan), TARGETS))
    np.testing.assert_allclose(other.log_variance, own * equal.log_variance, rtol=1e-5)


def test_no_set_chooses_and_reports():
    assert not set(CHOOSING) & set(REPORTING)


def test_a_rate_that_diverged_is_not_chosen():
    result = {
        "validation_nll": [[[float("nan"), 0.0], [2.0, 2.0]]],
        "test_nll": [[[-9.0, -9.0], [1.0, 3.0]]],
        "test_rmse": [[[0.0, 0.0], [4.0, 6.0]]],
    }
    nll, rmse = best_rate(result)
    assert (nll[0], rmse[0]) == pytest.approx((2.0, 5.0))
