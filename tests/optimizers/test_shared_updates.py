"""The shared component of updates: against a dense projection, in every layout, on hidden units."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax.optimizers import (
    descend,
    fisher8_optimizer,
    scale_by_kl_radius,
    shrink_shared_updates,
)
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network


def shorten(update):
    link = shrink_shared_updates()
    return link.update(update, link.init(update))[0]


def dense(shape):
    """The matrix of the link on flattened arrays: a Kronecker product, one factor per axis."""
    factors = [np.eye(n) - (1 - n**-0.5) * np.ones((n, n)) / n for n in shape]
    return functools.reduce(np.kron, factors)


@pytest.mark.parametrize("shape", [(5, 3), (1, 7), (2, 1), (3, 2, 4), (2, 3, 2, 5)])
def test_it_is_a_positive_definite_matrix_on_every_layout(shape):
    update = np.random.default_rng(0).normal(size=shape)
    matrix = dense(shape)
    np.testing.assert_allclose(shorten(update).ravel(), matrix @ update.ravel(), rtol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > 0
    # Libraries disagree about the order of the axes: the same result in all of them.
    np.testing.assert_allclose(shorten(update.T), shorten(update).T, rtol=1e-12)


def test_biases_scalars_and_empty_arrays_stay_as_they_are():
    update = {"bias": jnp.ones(4), "scale": jnp.array(2.0), "empty": jnp.ones((0, 3))}
    jax.tree.map(np.testing.assert_array_equal, shorten(update), update)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_narrow_arrays_are_summed_wide(dtype):
    update = jnp.full((4096, 2), 30.0, dtype)  # a sum in float16 would be infinite
    found = shorten(update)
    assert found.dtype == dtype
    expected = 30 / np.sqrt(4096 * 2)
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=1e-2)


def test_it_is_the_same_under_jit_and_vmap():
    updates = jax.random.normal(jax.random.key(0), (3, 5, 4))
    alone = jnp.stack([shorten(update) for update in updates])
    np.testing.assert_allclose(jax.jit(jax.vmap(shorten))(updates), alone, rtol=1e-12)


def test_it_stands_before_the_radius_and_only_with_a_bound():
    params, (inputs, targets) = make_params(), make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    predict = functools.partial(network, inputs=inputs)

    def first_step(optimizer):
        return optimizer.update(gradients, optimizer.init(params), params, predict=predict)[0]

    nadam = optax.nadam(1.0, b1=0.9, b2=0.99)
    radius = scale_by_kl_radius(0.3, max_change=0.3)
    by_hand = first_step(optax.chain(nadam, shrink_shared_updates(), radius))
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(same, first_step(fisher8_optimizer(10)), by_hand)
    jax.tree.map(
        same,
        first_step(descend(radius, momentum=0.9, second_moment=0.99, protect_units=True)),
        by_hand,
    )
    unprotected = first_step(optax.chain(nadam, scale_by_kl_radius(0.3)))
    jax.tree.map(same, first_step(fisher8_optimizer(10, max_change=None)), unprotected)


def test_the_rest_of_a_relu_layer_is_moved_as_far_together_as_apart():
    """What the division is for: both kinds of moves change the sums of a unit equally."""
    rng = np.random.default_rng(0)
    activations = np.maximum(rng.normal(size=(400, 256)), 0)
    together, apart = np.ones((256, 1)), rng.choice([-1.0, 1.0], size=(256, 1))
    before = [np.abs(activations @ move).mean() for move in (together, apart)]
    after = [np.abs(activations @ shorten(move)).mean() for move in (together, apart)]
    assert before[0] > 8 * before[1]
    assert after[0] < 1.5 * after[1]
