"""The latent-variable layer: Monte Carlo against its closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from benchmarks.machinery.heads import latent as latent_head
from benchmarks.machinery.losses.collier import collier, with_noise
from fisher8_jax import Gaussian

TAU = 0.5
MEAN, S = np.array([0.0, 0.3, -1.0, 2.0]), np.array([0.0, -1.0, 0.5, 1.0])
Y = np.array([0.5, 0.0, -2.0, 1.0])
TOTAL = np.exp(S) + TAU**2


def latent():
    return Gaussian(jnp.asarray(MEAN), jnp.asarray(S))


def losses(keys, num_samples):
    def one(key):
        return collier(latent(), jnp.asarray(Y), temperature=TAU, key=key, num_samples=num_samples)

    return np.asarray(jax.jit(jax.vmap(one))(keys))


def test_temperature_0_is_the_nll():
    expected = -scipy.stats.norm(MEAN, np.exp(S / 2)).logpdf(Y)
    np.testing.assert_allclose(collier(latent(), jnp.asarray(Y)), expected, rtol=1e-12)


def test_predictive_adds_the_temperature():
    dist = with_noise(latent(), TAU)
    np.testing.assert_allclose(dist.variance, TOTAL, rtol=1e-12)
    np.testing.assert_allclose(with_noise(latent(), 0).variance, np.exp(S), rtol=1e-12)


def test_monte_carlo_approaches_the_closed_form_as_draws_grow():
    """The root mean square error falls as 1 / sqrt(draws): by 16 from 100 to 25 600 draws."""
    exact = -scipy.stats.norm(MEAN, np.sqrt(TOTAL)).logpdf(Y)
    keys = jax.random.split(jax.random.key(1), 40)
    few = np.sqrt(np.mean((losses(keys, 100) - exact) ** 2))
    many = np.sqrt(np.mean((losses(keys, 25_600) - exact) ** 2))
    assert many < 0.01
    assert 12 < few / many < 21


def test_bias_is_half_the_relative_variance_over_the_number_of_draws():
    """N(y; u, tau^2)^2 is N(y; u, tau^2/2) / (2 tau sqrt(pi)), which gives the second moment."""
    num_samples = 100
    first = scipy.stats.norm(MEAN, np.sqrt(TOTAL)).pdf(Y)
    second = scipy.stats.norm(MEAN, np.sqrt(np.exp(S) + TAU**2 / 2)).pdf(Y)
    second /= 2 * TAU * np.sqrt(np.pi)
    expected = (second / first**2 - 1) / (2 * num_samples)
    keys = jax.random.split(jax.random.key(2), 20_000)
    bias = losses(keys, num_samples).mean(axis=0) + np.log(first)
    # The standard error of the mean is sqrt(2 * expected / 20 000), at most 0.0015.
    np.testing.assert_allclose(bias, expected, atol=4 * np.sqrt(2 * expected.max() / 20_000))
    assert (bias > 0).all()


def test_gradients_approach_those_derived_by_hand():
    def total(mean, s):
        dist, key = Gaussian(mean, s), jax.random.key(3)
        options = {"temperature": TAU, "key": key, "num_samples": 200_000}
        return collier(dist, jnp.asarray(Y), **options).sum()

    by_mean, by_s = jax.jit(jax.grad(total, (0, 1)))(jnp.asarray(MEAN), jnp.asarray(S))
    np.testing.assert_allclose(by_mean, (MEAN - Y) / TOTAL, atol=0.02)
    z2 = (Y - MEAN) ** 2 / TOTAL
    np.testing.assert_allclose(by_s, np.exp(S) / TOTAL * (1 - z2) / 2, atol=0.02)


def test_two_noises_are_one():
    """The layer as published, with a noise for the factor and one for the diagonal, in NumPy."""
    factor, raw = np.array([0.5, -0.8, 0.0, 1.0]), np.array([0.0, -1.0, 1.0, 0.5])
    diagonal = np.log1p(np.exp(raw)) + 1e-3
    rng, draws = np.random.default_rng(4), 400_000
    e, e_prime = rng.normal(size=(2, draws, 4))
    u = MEAN + factor * e + diagonal * e_prime
    log_density = scipy.stats.norm(u, TAU).logpdf(Y)
    published = np.log(draws) - scipy.special.logsumexp(log_density, axis=0)
    dist = latent_head(jnp.asarray(MEAN), jnp.asarray(factor), jnp.asarray(raw))
    np.testing.assert_allclose(with_noise(dist, TAU).nll(jnp.asarray(Y)), published, atol=0.01)


@pytest.mark.parametrize("num_samples", [1, 31, 33])
def test_any_number_of_draws_is_used_exactly(num_samples):
    """Against the same draws without blocks; the last block is not full."""
    key, block = jax.random.key(5), 32
    keys = jax.random.split(key, -(-num_samples // block))
    noise = np.concatenate([jax.random.normal(k, (block, 4), jnp.float64) for k in keys])
    u = MEAN + np.exp(S / 2) * noise[:num_samples]
    log_density = scipy.stats.norm(u, TAU).logpdf(Y)
    expected = np.log(num_samples) - scipy.special.logsumexp(log_density, axis=0)
    actual = collier(latent(), jnp.asarray(Y), temperature=TAU, key=key, num_samples=num_samples)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_temperature_may_be_traced():
    key = jax.random.key(6)
    function = jax.jit(
        lambda tau: collier(latent(), jnp.asarray(Y), temperature=tau, key=key, num_samples=64)
    )
    expected = collier(latent(), jnp.asarray(Y), temperature=TAU, key=key, num_samples=64)
    np.testing.assert_allclose(function(TAU), expected, rtol=1e-12)


def test_targets_far_from_every_draw_stay_finite():
    """At 1000 standard deviations every density underflows; their logarithms do not."""

    def total(mean):
        dist = Gaussian(mean, jnp.zeros(1, jnp.float32))
        targets = jnp.full(1, 1000.0, jnp.float32)
        return collier(dist, targets, temperature=1.0, key=jax.random.key(7), num_samples=64).sum()

    value, gradient = jax.value_and_grad(total)(jnp.zeros(1, jnp.float32))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert gradient[0] < 0


def test_memory_does_not_hold_all_draws():
    """The backward pass of 3200 draws needs less than an eighth of one array of all draws."""
    size, num_samples = 1000, 3200

    def total(mean):
        dist = Gaussian(mean, jnp.zeros(size, jnp.float32))
        targets = jnp.ones(size, jnp.float32)
        options = {"temperature": 1.0, "key": jax.random.key(8), "num_samples": num_samples}
        return collier(dist, targets, **options).sum()

    compiled = jax.jit(jax.grad(total)).lower(jnp.zeros(size, jnp.float32)).compile()
    temporary = compiled.memory_analysis().temp_size_in_bytes
    assert 0 < temporary < 4 * size * num_samples / 8
