"""The batch KL of a step: exact, quadratic and bounded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, batch_kl, batch_kl_bound, fisher8_nll

RNG = np.random.default_rng(0)
DIST = Gaussian(*(jnp.asarray(RNG.normal(size=(16, 2))) for _ in range(2)))
TARGETS = jnp.asarray(RNG.normal(size=(16, 2)))


def quadratic_batch_kl(dist, step):
    """The batch KL to second order in the step."""
    return 0.5 * dist.fisher_norm_sq(step).sum()


def fisher8_step(dist, learning_rate):
    direction = jax.grad(lambda d: fisher8_nll(d, TARGETS).sum())(dist)
    return jax.tree.map(lambda g: -learning_rate * g, direction)


@pytest.mark.parametrize("learning_rate", [1e-4, 1e-2, 0.5])
def test_the_paper_s_bound_holds_for_the_quadratic_batch_kl(learning_rate):
    step = fisher8_step(DIST, learning_rate)
    quadratic = quadratic_batch_kl(DIST, step)
    bound = batch_kl_bound(DIST, learning_rate)
    assert 0 < quadratic <= bound
    # Two targets, each with a bound of its own, written out.
    smallest = np.asarray(DIST.log_variance).min(0)
    np.testing.assert_allclose(bound, learning_rate**2 * np.sum(np.exp(-smallest) / 2 + 0.25))


def test_the_bound_is_reached_when_all_variances_are_equal():
    dist = Gaussian(DIST.mean, jnp.zeros((16, 2)))
    step = fisher8_step(dist, 0.1)
    np.testing.assert_allclose(quadratic_batch_kl(dist, step), batch_kl_bound(dist, 0.1))


def test_exact_and_quadratic_agree_for_small_steps():
    step = fisher8_step(DIST, 1e-3)
    after = jax.tree.map(jnp.add, DIST, step)
    exact = batch_kl(DIST, after)
    np.testing.assert_allclose(exact, quadratic_batch_kl(DIST, step), rtol=1e-2)
    np.testing.assert_allclose(exact, np.sum(DIST.kl(after)))


def test_masked_elements_do_not_count():
    where = jnp.asarray(RNG.random((16, 2)) < 0.5)
    step = fisher8_step(DIST, 0.1)
    after = jax.tree.map(jnp.add, DIST, step)
    np.testing.assert_allclose(batch_kl(DIST, after, where=where), np.sum(DIST.kl(after)[where]))


def test_jit_vmap_and_narrow_dtypes():
    after = jax.tree.map(jnp.add, DIST, fisher8_step(DIST, 0.1))
    jitted = jax.jit(batch_kl)(DIST, after)
    np.testing.assert_allclose(jitted, batch_kl(DIST, after))
    per_target = jax.vmap(batch_kl, in_axes=1)(DIST, after)
    np.testing.assert_allclose(per_target.sum(), jitted)
    narrow, moved = jax.tree.map(lambda a: a.astype(jnp.float32), (DIST, after))
    value = batch_kl(narrow, moved)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, jitted, rtol=1e-3)
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), DIST)
    assert batch_kl(half, half).dtype == jnp.float32


def test_errors():
    with pytest.raises(ValueError, match=r"`after` must be a Gaussian of shape \(16, 2\)"):
        batch_kl(DIST, Gaussian(jnp.zeros(3), jnp.zeros(3)))
    with pytest.raises(ValueError, match="`after` must be a Gaussian"):
        batch_kl(DIST, jnp.zeros(3))
    with pytest.raises(TypeError, match="derived for the Gaussian"):
        batch_kl_bound(jnp.zeros(3), 0.1)
