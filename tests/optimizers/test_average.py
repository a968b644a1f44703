"""The average of the parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from fisher8_jax.optimizers import (
    fisher8_optimizer,
    scale_by_kl_radius,
    track_average,
)
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network


def run(optimizer, params, gradients):
    """Updates by the rows of `gradients`; returns the state and all parameters on the way."""

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    return jax.jit(lambda c: lax.scan(step, c, gradients))((params, optimizer.init(params)))


@pytest.mark.parametrize("horizon", [1, 3, 50.0])
def test_the_average_is_the_weighted_mean_of_the_parameters(horizon):
    gradients = jnp.asarray(np.random.default_rng(0).normal(size=(20, 4)))
    (_, state), path = run(
        optax.chain(optax.sgd(0.1), track_average(horizon)), jnp.ones(4), gradients
    )
    weights = (1 - 1 / horizon) ** np.arange(19, -1, -1.0)
    expected = weights @ np.asarray(path) / weights.sum()
    average = optax.tree_utils.tree_get(state, "average")
    np.testing.assert_allclose(average, expected, rtol=1e-5)  # weights are computed in float32


def test_half_precision_parameters_are_averaged_in_float32():
    # Steps of 2^-8 on 1 are one bit of bfloat16: their average is not a bfloat16 number.
    gradients = jnp.full((4, 1), -(2.0**-7), jnp.bfloat16)
    optimizer = optax.chain(optax.sgd(1.0), track_average(1e6))
    (_, state), path = run(optimizer, jnp.ones(1, jnp.bfloat16), gradients)
    average = optax.tree_utils.tree_get(state, "average")
    assert average.dtype == jnp.float32
    np.testing.assert_allclose(average, np.mean(np.asarray(path, np.float32), 0), rtol=1e-5)


def test_it_follows_the_radius_and_leaves_the_update_alone():
    params, (inputs, targets) = make_params(), make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    predict = functools.partial(network, inputs=inputs)
    plain = scale_by_kl_radius(0.1)
    expected, _ = plain.update(gradients, plain.init(params), params, predict=predict)
    optimizer = optax.chain(scale_by_kl_radius(0.1), track_average(10))
    updates, state = optimizer.update(gradients, optimizer.init(params), params, predict=predict)
    for name in params:
        assert np.array_equal(updates[name], expected[name])
        average = optax.tree_utils.tree_get(state, "average")[name]
        np.testing.assert_allclose(average, params[name] + updates[name], atol=1e-6)


def test_the_default_optimizer_takes_an_average_behind_it():
    params, (inputs, targets) = make_params(), make_batch()
    optimizer = optax.chain(fisher8_optimizer(10), track_average(5))
    gradients = fisher8_gradients(params, inputs, targets)
    _, state = optimizer.update(
        gradients, optimizer.init(params), params, predict=lambda p: network(p, inputs)
    )
    assert int(optax.tree_utils.tree_get(state, "skipped")) == 0


def test_errors():
    with pytest.raises(ValueError, match="`horizon` must be at least 1, got 0"):
        track_average(0.5)
    average = track_average(2)
    with pytest.raises(ValueError, match="`track_average` needs `params`"):
        average.update(jnp.ones(2), average.init(jnp.ones(2)))
