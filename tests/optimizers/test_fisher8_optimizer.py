"""The default optimizer against its parts and on a small problem."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from fisher8_jax.optimizers import default_max_kl, fisher8_optimizer, scale_by_kl_radius
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network


def train(optimizer, params, inputs, targets, steps):
    """Trains on one batch and returns parameters, state and the scales of all steps."""

    def step(carry, _):
        params, state = carry
        gradients = fisher8_gradients(params, inputs, targets)
        predict = functools.partial(network, inputs=inputs)
        updates, state = optimizer.update(gradients, state, params, predict=predict)
        measured = optax.tree_utils.tree_get(state, "quadratic_kl")
        return (optax.apply_updates(params, updates), state), measured

    start = (params, optimizer.init(params))
    return jax.jit(lambda start: lax.scan(step, start, length=steps))(start)


def test_without_second_moments_it_is_nesterov_momentum_with_a_radius_that_falls_to_zero():
    params, batch = make_params(), make_batch()
    optimizer = fisher8_optimizer(10, second_moment=None, max_change=None)
    (trained, _), divergences = train(optimizer, params, *batch, steps=10)
    np.testing.assert_allclose(divergences, 0.3 * (1 - np.arange(10) / 10) ** 2, rtol=1e-5)
    schedule = optax.polynomial_schedule(0.3, 0.0, power=2, transition_steps=10)
    by_hand = optax.chain(optax.sgd(1.0, momentum=0.9, nesterov=True), scale_by_kl_radius(schedule))
    (expected, _), _ = train(by_hand, params, *batch, steps=10)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), trained, expected)


def test_second_moments_come_between_the_gradient_and_the_radius():
    params, batch = make_params(), make_batch()
    optimizer = fisher8_optimizer(10, max_change=None)
    (trained, _), divergences = train(optimizer, params, *batch, steps=10)
    np.testing.assert_allclose(divergences, 0.3 * (1 - np.arange(10) / 10) ** 2, rtol=1e-5)
    schedule = optax.polynomial_schedule(0.3, 0.0, power=2, transition_steps=10)
    by_hand = optax.chain(optax.nadam(1.0, b1=0.9, b2=0.99), scale_by_kl_radius(schedule))
    (expected, _), _ = train(by_hand, params, *batch, steps=10)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), trained, expected)


def test_the_default_radius_bounds_the_divergence_of_the_whole_budget():
    for steps in (1, 100, 2_000, 50_000):
        radii = default_max_kl(steps) * (1 - np.arange(steps) / steps) ** 2
        assert radii[0] <= 0.3
        # The sum of n squares is n/3 up to a term of order 1, which the first steps pay.
        assert radii.sum() <= 200 + 0.3
    assert default_max_kl(100) == 0.3


def test_it_fits_mean_and_noise_without_a_learning_rate():
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(64, 3)))
    targets = jnp.asarray(np.tanh(inputs[:, 0]) + 0.1 * rng.normal(size=64))
    (params, state), _ = train(fisher8_optimizer(400), make_params(), inputs, targets, steps=400)
    dist = network(params, inputs)
    # The noise has a standard deviation of 0.1, the targets one of about 0.6.
    assert float(jnp.sqrt(jnp.mean((dist.mean - targets) ** 2))) < 0.15
    assert 0.05 < float(jnp.exp(jnp.mean(dist.log_variance) / 2)) < 0.15
    assert int(optax.tree_utils.tree_get(state, "skipped")) == 0


def test_a_bad_gradient_does_not_spoil_the_momentum():
    params, (inputs, targets) = make_params(), make_batch()
    optimizer = fisher8_optimizer(10)
    predict = functools.partial(network, inputs=inputs)
    update = jax.jit(functools.partial(optimizer.update, predict=predict))
    state = optimizer.init(params)
    gradients = fisher8_gradients(params, inputs, targets)
    bad = gradients | {"b1": gradients["b1"].at[0].set(jnp.inf)}
    updates, state = update(bad, state, params)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(updates))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    updates, _ = update(gradients, state, params)
    assert float(jnp.abs(updates["w1"]).max()) > 0


def test_no_moments_is_plain_fisher8_with_a_radius():
    params, (inputs, targets) = make_params(), make_batch()
    optimizer = fisher8_optimizer(10, momentum=0.0, second_moment=None, max_kl=0.3, max_change=None)
    predict = functools.partial(network, inputs=inputs)
    gradients = fisher8_gradients(params, inputs, targets)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params, predict=predict)
    ratio = updates["w1"] / gradients["w1"]
    np.testing.assert_allclose(ratio, jnp.full_like(ratio, ratio[0, 0]), rtol=1e-9)
    assert float(ratio[0, 0]) < 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_steps": 0}, "`num_steps` must be a positive integer, got 0"),
        ({"num_steps": 10.0}, "`num_steps` must be a positive integer, got 10.0"),
        ({"num_steps": 10, "max_kl": -1.0}, "`max_kl` must be positive"),
        ({"num_steps": 10, "momentum": 1.0}, "`momentum` must be at least 0 and below 1"),
        ({"num_steps": 10, "second_moment": 1.0}, "`second_moment` must be at least 0 and below 1"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        fisher8_optimizer(**arguments)
