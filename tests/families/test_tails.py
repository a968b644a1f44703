"""Single answers in float32 that used to be wrong; each right value by the formula next to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from fisher8_jax import families as f8
from fisher8_jax._internal.numerics import materialize
from fisher8_jax.ensembles import Mixture


def f32(*values):
    return [jnp.full(1, value, jnp.float32) for value in values]


def test_small_quantiles():
    (p,) = f32(1e-8)
    laplace = f8.Laplace(*f32(0.0, 0.0)).quantile(p)
    np.testing.assert_allclose(laplace, np.log(2e-8), rtol=1e-6)
    von_mises = f8.VonMises(*f32(0.0, 9.4)).quantile(p)
    right = scipy.stats.vonmises(np.exp(9.4)).ppf(1e-8)
    np.testing.assert_allclose(von_mises, right, rtol=1e-4)


def test_upper_quantile_of_a_gamma_that_is_almost_always_0():
    k, (p,) = float(np.float32(-14.0)), f32(1 - 1e-6)
    got = f8.Gamma(*f32(0.0, -14.0)).quantile(p)
    # Q(a, x) is a E1(x) for tiny a; the tail is what float32 makes of 1 - 1e-6.
    a, tail = np.exp(k), 1 - float(p[0])
    x = scipy.special.gammainccinv(a, tail)
    np.testing.assert_allclose(got, x / a, rtol=1e-4)


@pytest.mark.parametrize("name", ["LogNormal", "Weibull", "Gamma", "Laplace", "Beta", "VonMises"])
def test_the_cdf_of_nan_is_nan(name):
    assert np.isnan(getattr(f8, name)(*f32(0.0, 0.0)).cdf(*f32(np.nan)))[0]


@pytest.mark.parametrize("name", ["Bernoulli", "Poisson"])
def test_the_cdf_of_nan_is_nan_for_counts(name):
    assert np.isnan(getattr(f8, name)(*f32(0.0)).cdf(*f32(np.nan)))[0]


def test_large_counts():
    """ln 8886123! by Stirling in double precision."""
    y, rate = 8886123.0, np.exp(16.0)
    right = rate - 16 * y + scipy.special.gammaln(y + 1)
    for dist in (
        f8.Poisson(*f32(16.0)),
        f8.ZeroInflatedPoisson(*f32(-30.0, 16.0)),
        f8.NegativeBinomial(*f32(16.0, 60.0)),
    ):
        np.testing.assert_allclose(dist.nll(*f32(y)), right, rtol=1e-5)


def test_natural_scores():
    """Right values with 50 digits, by `tests/families/reference/exact.py`."""
    score = f8.NegativeBinomial(*f32(-2.838, 1.663)).natural_score(*f32(0.0))
    np.testing.assert_allclose(materialize(score["log_concentration"]), 6.31, rtol=2e-3)
    score = f8.Beta(*f32(16.0, 0.8)).natural_score(*f32(0.01))
    np.testing.assert_allclose(materialize(score["logit_mean"]), 2.65e7, rtol=4e-3)


def test_quantiles_of_mixtures_of_different_scales():
    members = f8.Gaussian(
        jnp.array([[1.0], [1.0], [1.0], [1.0], [1e14]], jnp.float32), jnp.zeros((5, 1), jnp.float32)
    )
    right = 1 + scipy.stats.norm.ppf(0.5)  # 0.4 of five members is half of four
    np.testing.assert_allclose(Mixture(members).quantile(*f32(0.4)), right, atol=1e-5)
    mixture = f8.GaussianMixture(
        *(jnp.array([v], jnp.float32) for v in ([0, 0], [0, 0], [-30, 30]))
    )
    got = mixture.quantile(*f32(0.7))
    np.testing.assert_allclose(mixture.cdf(got), 0.7, atol=1e-6)


def test_the_crps_of_separated_members_is_the_closed_form():
    means, logs = np.array([0.0, 30.0, 31.0, -400.0]), np.array([0.0, -3.0, 2.0, 1.0])
    members = f8.Gaussian(*(jnp.asarray(x[:, None], jnp.float32) for x in (means, logs)))
    closed = f8.GaussianMixture(
        jnp.zeros((1, 4)), jnp.asarray(means[None]), jnp.asarray(logs[None])
    )
    for y in (-400.0, 0.3, 15.0, 31.0):
        right = closed.crps(jnp.full(1, y))
        np.testing.assert_allclose(Mixture(members).crps(*f32(y)), right, rtol=1e-4)


@pytest.mark.parametrize("log_rate", [13.0, 14.5, 30.0])  # drawn by JAX, just beyond, far beyond
def test_draws_of_large_counts(log_rate):
    """JAX's own Poisson draws end at 2^31; moments of 4,000 draws within five standard errors."""
    rate, key = np.exp(log_rate), jax.random.key(0)
    for dist in (
        f8.Poisson(jnp.asarray(log_rate)),
        f8.ZeroInflatedPoisson(jnp.asarray(-60.0), jnp.asarray(log_rate)),
        f8.NegativeBinomial(jnp.asarray(log_rate), jnp.asarray(80.0)),  # nearly a Poisson
    ):
        z = (np.asarray(dist.sample(key, (4000,))) - rate) / np.sqrt(rate)
        assert abs(z.mean()) < 5 / 4000**0.5
        assert abs(z.var() - 1) < 5 * (2 / 4000) ** 0.5
    spread = f8.NegativeBinomial(jnp.asarray(log_rate), jnp.asarray(3.0))
    draws = np.asarray(spread.sample(key, (4000,)))
    variance = float(spread.variance)
    assert abs(draws.mean() - rate) < 5 * np.sqrt(variance / 4000)
    assert draws.std() > 0.9 * np.sqrt(variance)
    assert np.isposinf(f8.Poisson(*f32(200.0)).sample(key))[0]  # no count, but no nan


def test_counts_far_beyond_the_mean():
    """With `r = m` tiny, `-ln(mass)` is near `y ln 2`; shares of the divergence underflowed."""
    for log_mean, y in ((-60.0, 1.142e26), (-28.5, 4.8e25)):
        found = f8.NegativeBinomial(*f32(log_mean, log_mean)).nll(*f32(y))
        np.testing.assert_allclose(found, y * np.log(2), rtol=1e-4)
