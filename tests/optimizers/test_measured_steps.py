"""A radius that is measured every few steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from fisher8_jax import Gaussian
from fisher8_jax.optimizers import fisher8_optimizer, scale_by_kl_radius
from tests.optimizers.network import fisher8_gradients, make_params, network

EVERY = 4


def linear(params, inputs):
    """A model whose divergence is a quadratic function of the step, exactly."""
    return Gaussian(inputs @ params, jnp.zeros(len(inputs)))


def test_steps_between_measurements_have_the_radius_if_the_batch_stays():
    """Updates of one direction and any length: whichever step is measured, all move alike."""
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(16, 3)))
    radius, params = scale_by_kl_radius(0.1, measure_every=EVERY), jnp.zeros(3)
    state, moved = radius.init(params), []
    for count in range(2 * EVERY):
        direction = 10.0 ** (count - 4) * jnp.array([1.0, -2.0, 0.5])
        step, state = radius.update(direction, state, params, predict=lambda p: linear(p, inputs))
        moved.append(0.5 * np.mean(np.square(inputs @ step)))
    np.testing.assert_allclose(moved, 0.1, rtol=1e-5)
    assert int(state.count) == 2 * EVERY
    assert int(state.skipped) == 0
    np.testing.assert_allclose(state.quadratic_kl, 0.1, rtol=1e-5)


def train(every, steps=200, size=32):
    """True divergences, in radii, of a training on fresh noisy batches, and how often it asked."""
    asked = []

    def predict(params, inputs):
        jax.debug.callback(lambda: asked.append(1))
        return network(params, inputs)

    def step(carry, key):
        params, state = carry
        inputs = jax.random.normal(key, (size, 3))
        noise = jax.random.normal(jax.random.fold_in(key, 1), (size,))
        targets = jnp.sin(2 * inputs[:, 0]) + 0.3 * noise
        gradients = fisher8_gradients(params, inputs, targets)
        updates, state = optimizer.update(
            gradients, state, params, predict=lambda p: predict(p, inputs)
        )
        dist, change = jax.jvp(lambda p: network(p, inputs), (params,), (updates,))
        kl = 0.5 * jnp.mean(dist.fisher_norm_sq(change))
        return (optax.apply_updates(params, updates), state), kl

    optimizer = fisher8_optimizer(steps, max_kl=lambda _: 0.05, measure_every=every)
    params = make_params()
    keys = jax.random.split(jax.random.key(0), steps)
    carry = params, optimizer.init(params)
    (_, state), kl = jax.jit(lambda carry: lax.scan(step, carry, keys))(carry)
    jax.effects_barrier()
    return np.asarray(kl) / 0.05, state, len(asked)


def test_the_radius_holds_on_average_and_nearly_in_each_step():
    radii, state, asked = train(EVERY)
    assert int(optax.tree_utils.tree_get(state, "skipped")) == 0
    # Those at the start, then every fourth; the bound on the parameters shortens some.
    measured = np.arange(200) % EVERY == 0
    assert radii[measured].max() <= 1 + 1e-4
    assert asked == 200 // EVERY + EVERY - 1
    assert radii.mean() <= 1
    assert radii.max() <= 4


def test_measuring_each_step_is_exact():
    radii, _, asked = train(None)
    assert radii.max() <= 1 + 1e-4
    assert asked == 200


@pytest.mark.parametrize("factor", [jnp.nan, jnp.inf, 0.0])
@pytest.mark.parametrize("count", [0, EVERY + 1])
def test_bad_updates_are_dropped_and_forgotten(factor, count):
    inputs = jnp.ones((4, 3))
    radius, params = scale_by_kl_radius(0.1, measure_every=EVERY), jnp.zeros(3)
    state = radius.init(params)

    def update(direction, state):
        return radius.update(direction, state, params, predict=lambda p: linear(p, inputs))

    for _ in range(count):
        _, state = update(jnp.ones(3), state)
    dropped, state = update(factor * jnp.ones(3), state)
    np.testing.assert_array_equal(dropped, 0)
    assert int(state.skipped) == 1
    assert float(state.scale) == 0
    step, state = update(jnp.ones(3), state)
    np.testing.assert_allclose(0.5 * np.mean(np.square(inputs @ step)), 0.1, rtol=1e-5)
    assert int(state.skipped) == 1


def test_the_mode_cap_leaves_short_updates_alone():
    inputs = jnp.ones((4, 3))
    radius = scale_by_kl_radius(0.1, mode="cap", measure_every=EVERY)
    params = jnp.zeros(3)
    state = radius.init(params)
    for length in [1e-3] * (EVERY + 1) + [1e3]:
        step, state = radius.update(
            jnp.full(3, length), state, params, predict=lambda p: linear(p, inputs)
        )
        expected = min(length, (0.2**0.5) / 3)
        np.testing.assert_allclose(step, expected, rtol=1e-5)


def test_no_array_moves_further_than_its_bound():
    params = make_params()
    inputs = jnp.ones((8, 3)) * 1e-3  # predictions hardly answer to the first kernel
    radius = scale_by_kl_radius(10.0, max_change=0.01, measure_every=EVERY)
    state = radius.init(params)
    updates = jax.tree.map(lambda leaf: jnp.where(leaf.ndim == 2, leaf, 0), params)
    for _ in range(2 * EVERY):
        step, state = radius.update(updates, state, params, predict=lambda p: network(p, inputs))
        np.testing.assert_allclose(state.change, 0.01, rtol=1e-5)
        assert float(state.wanted_change) > 0.01
        sizes = [
            np.sqrt(np.mean(np.square(x[name]))) for name in ("w1", "w2") for x in (step, params)
        ]
        assert max(sizes[0] / sizes[1], sizes[2] / sizes[3]) <= 0.01 * (1 + 1e-5)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`measure_every` must be"):
        scale_by_kl_radius(0.1, measure_every=0)
    with pytest.raises(ValueError, match="`exact=True` measures every step"):
        fisher8_optimizer(10, measure_every=2, exact=True)
