"""Censored and missing targets: values against SciPy, gradients finite in the tails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fisher8_jax import fisher8, fisher8_nll
from fisher8_jax.families import Gamma, Gaussian, Laplace, LogNormal, Weibull, censored_nll

INF = np.inf
LOWER = np.array([0.4, -INF, 0.9, 0.3, 2.0])
UPPER = np.array([0.4, 0.7, INF, 0.8, 2.5])
A, B = np.array([0.2, 0.5, -0.3, 0.1, 0.0]), np.array([0.1, -0.6, 0.4, 0.0, 0.3])

CASES = {
    "Gaussian": (Gaussian, scipy.stats.norm(A, np.exp(B / 2))),
    "Laplace": (Laplace, scipy.stats.laplace(A, np.exp(B))),
    "LogNormal": (LogNormal, scipy.stats.lognorm(np.exp(B / 2), scale=np.exp(A))),
    "Weibull": (Weibull, scipy.stats.weibull_min(np.exp(B), scale=np.exp(A))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_equal_scipy(name):
    make, frozen = CASES[name]
    expected = -np.log(frozen.cdf(UPPER) - frozen.cdf(LOWER), where=LOWER < UPPER, out=np.zeros(5))
    is_exact = LOWER == UPPER
    expected = np.where(is_exact, -frozen.logpdf(np.where(is_exact, UPPER, 1)), expected)
    dist = make(jnp.asarray(A), jnp.asarray(B))
    got = jax.jit(censored_nll)(dist, jnp.asarray(LOWER), jnp.asarray(UPPER))
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("sign", [-1, 1])
def test_gaussian_intervals_far_in_the_tail_keep_their_gradient(sign):
    """30 standard deviations out the cdf is exactly 0 or 1, its logarithm is not."""
    lower, upper = sorted([sign * 30.0, sign * 31.0])

    def loss(mean):
        dist = Gaussian(mean, jnp.zeros(1, jnp.float32))
        bounds = jnp.full(1, lower, jnp.float32), jnp.full(1, upper, jnp.float32)
        return censored_nll(dist, *bounds).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.zeros(1, jnp.float32))
    # ln P(30 < Z) by SciPy; the hazard of a Gaussian at z is close to z + 1/z.
    np.testing.assert_allclose(value, -scipy.stats.norm.logsf(30), rtol=1e-6)
    np.testing.assert_allclose(gradient, -sign * (30 + 1 / 30), rtol=1e-3)


def test_natural_gradient_uses_the_uncensored_information():
    lower, upper = jnp.asarray([-jnp.inf]), jnp.asarray([0.5])
    mean, log_variance = jnp.asarray([0.2]), jnp.asarray([0.7])

    def loss(mean, log_variance, wrap):
        return censored_nll(wrap(Gaussian(mean, log_variance)), lower, upper).sum()

    def wrap(dist):
        return fisher8(dist, normalize=False)

    gradients = jax.jit(jax.grad(loss, (0, 1)), static_argnames="wrap")
    plain = gradients(mean, log_variance, wrap=lambda d: d)
    natural = gradients(mean, log_variance, wrap=wrap)
    np.testing.assert_allclose(natural[0], jnp.exp(log_variance) * plain[0])
    np.testing.assert_allclose(natural[1], 2 * plain[1])


def test_missing_targets_have_no_value_and_no_gradient():
    where = jnp.asarray([True, True, False, True, True])
    nan = jnp.asarray(np.where(where, LOWER, np.nan))
    upper = jnp.asarray(np.where(where, UPPER, np.nan))

    def loss(a):
        dist = fisher8(Gaussian(a, jnp.asarray(B)), where=where)
        return censored_nll(dist, nan, upper, where=where).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(A))
    assert np.isfinite(value)
    assert gradient[2] == 0
    np.testing.assert_allclose(np.linalg.norm(gradient), 1)


def test_missing_targets_of_any_family_through_the_mask():
    where = jnp.asarray([True, False, True])
    targets = jnp.asarray([1.0, jnp.nan, 2.0])

    def loss(log_mean, keep):
        dist = Gamma(log_mean[keep], jnp.zeros(len(log_mean[keep])))
        mask = None if len(keep) == 2 else where
        return fisher8_nll(dist, targets[keep], where=mask).sum()

    x = jnp.asarray([0.1, 0.2, -0.3])
    kept = np.arange(3), np.array([0, 2])
    full, without = jax.jit(lambda x: [jax.grad(loss)(x, keep) for keep in kept])(x)
    np.testing.assert_allclose(full, without)


def test_crossed_bounds_are_loud_and_other_families_are_refused():
    dist = Gaussian(jnp.zeros(1), jnp.zeros(1))
    assert np.isnan(censored_nll(dist, jnp.ones(1), jnp.zeros(1)))[0]
    with pytest.raises(TypeError, match="`dist` must be one of Gaussian, LogNormal, Laplace"):
        censored_nll(Gamma(jnp.zeros(1), jnp.zeros(1)), jnp.zeros(1), jnp.ones(1))
    with pytest.raises(ValueError, match="`upper` must have the shape of the predictions"):
        censored_nll(dist, jnp.zeros(1), jnp.ones(2))
