"""Families by declaration: quadrature, Monte Carlo, and what a user may get wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import families as f8
from fisher8_jax import fisher8_nll


def log_density(y, location, log_scale):
    z = (y - location) * jnp.exp(-log_scale)
    return -log_scale - 0.5 * jnp.square(z) - 0.5 * jnp.log(2 * jnp.pi)


def sampler(key, shape, location, log_scale):
    return location + jnp.exp(log_scale) * jax.random.normal(key, shape, location.dtype)


SAMPLED = f8.declare_family(
    "Sampled",
    parameters=("location", "log_scale"),
    log_density=log_density,
    sampler=sampler,
    damping=1e-3,
    num_samples=4000,
)


def test_monte_carlo_information_is_right_within_its_error():
    dist = SAMPLED(jnp.asarray([0.5, -1.0]), jnp.asarray([0.3, -0.7]))
    got = np.asarray(dist.information())
    expected = np.stack([np.diag([np.exp(-2 * s), 2.0]) for s in (0.3, -0.7)])
    # The largest standard error of a score's square is sqrt(Var((z^2 - 1)^2) / 4000) = 0.12.
    np.testing.assert_allclose(got, expected, rtol=0.15, atol=0.3)


def test_monte_carlo_family_trains():
    targets = jnp.asarray([1.0, 3.0, 2.0, 2.5])

    def loss(parameters):
        location, log_scale = (jnp.broadcast_to(p, 4) for p in parameters)
        return fisher8_nll(SAMPLED(location, log_scale), targets, normalize=False).mean()

    @jax.jit
    def train(parameters):
        def step(_, p):
            return jax.tree.map(lambda a, g: a - 0.3 * g, p, jax.grad(loss)(p))

        return jax.lax.fori_loop(0, 40, step, parameters)

    location, log_scale = train((jnp.asarray(0.0), jnp.asarray(0.0)))
    # Every element has draws of its own, so each is weighted with a Monte Carlo error of 2 %.
    np.testing.assert_allclose(location, targets.mean(), atol=0.03)
    np.testing.assert_allclose(jnp.exp(log_scale), jnp.std(targets), atol=0.03)


def test_nodes_integrate():
    ones = jnp.ones(2)
    y, w = f8.quadrature_nodes("positive", 2 * ones)
    np.testing.assert_allclose(jnp.sum(w * jnp.exp(-y), 0), 1, rtol=1e-10)
    y, w = f8.quadrature_nodes("unit interval", ones)
    np.testing.assert_allclose(jnp.sum(w / jnp.sqrt(y), 0), 2, rtol=1e-6)
    y, w = f8.quadrature_nodes("real", ones, 3 * ones)
    np.testing.assert_allclose(jnp.sum(w / (1 + y**2), 0), np.pi, rtol=1e-7)
    y, w = f8.quadrature_nodes("counts", ones, count=60)
    np.testing.assert_allclose(jnp.sum(w * 0.5**y, 0), 2, rtol=1e-12)


def test_neither_sampler_nor_quadrature_is_an_error():
    with pytest.raises(ValueError, match="needs `quadrature` or `sampler`"):
        f8.declare_family("Bad", parameters=("a",), log_density=log_density)
    with pytest.raises(ValueError, match="`damping` must be positive, got 0"):
        f8.declare_family(
            "Bad", parameters=("a",), log_density=log_density, sampler=sampler, damping=0
        )
