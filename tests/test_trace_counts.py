"""How often a network is traced: compilation time grows with every one of these counts.

A count is the number of times that Python runs through the network while one training step
compiles. A later step of the same shapes compiles nothing.
"""

import chex
import jax
import jax.numpy as jnp
import optax
import pytest

from fisher8_jax import (
    Gaussian,
    evaluate,
    fisher8,
    fisher8_nll,
    fisher8_optimizer,
    microbatched_value_and_grad,
    scale_by_kl_radius,
)

PARAMS = {"weight": jnp.ones((2, 3)), "bias": jnp.zeros(2)}


@pytest.fixture(autouse=True)
def fresh_counts():
    """Chex counts by the name and place of a function, so tests would add up."""
    chex.clear_trace_counter()


def network(params, x):
    mean, log_variance = params["weight"] @ x + params["bias"][:, None]
    return Gaussian(mean, log_variance)


def batch(seed):
    x, y = jax.random.normal(jax.random.key(seed), (2, 3, 5))
    return x, y[0]


def run_steps(optimizer, predict):
    """Three compiled steps on three batches; the step itself is traced once."""

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(params, state, x, y):
        grads = jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params)
        updates, state = optimizer.update(grads, state, params, predict=lambda p: predict(p, x))
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, optimizer.init(PARAMS)
    for seed in range(3):
        params, state = step(params, state, *batch(seed))
    return params


@pytest.mark.parametrize(
    ("optimizer", "count"),
    [
        # The gradient, and the derivative of the predictions along the step.
        (scale_by_kl_radius(0.1), 2),
        (fisher8_optimizer(3), 2),
        # The gradient, and the program of the two predictions that are compared.
        (scale_by_kl_radius(0.1, measure="difference"), 2),
        # Besides the two of the quadratic measure the first divergence and the body of the loop.
        (scale_by_kl_radius(0.1, exact=True), 4),
    ],
    ids=["derivative", "recipe", "difference", "exact"],
)
def test_training_steps(optimizer, count):
    run_steps(optimizer, chex.assert_max_traces(network, n=count))
    chex.clear_trace_counter()
    with pytest.raises(AssertionError, match="traced"):
        run_steps(optimizer, chex.assert_max_traces(network, n=count - 1))


@pytest.mark.parametrize("loss", [lambda d, y: fisher8(d).nll(y), fisher8_nll])
def test_a_gradient_traces_the_network_once(loss):
    traced_once = chex.assert_max_traces(network, n=1)

    @jax.jit
    def gradient(params, x, y):
        return jax.grad(lambda p: loss(traced_once(p, x), y).mean())(params)

    for seed in range(3):
        chex.assert_tree_all_finite(gradient(PARAMS, *batch(seed)))


def test_microbatches_do_not_multiply_the_traces():
    """For the shapes of the batch and of the norms, for the norms, for the gradient."""
    counted = chex.assert_max_traces(lambda params, rows: network(params, rows.T), n=4)
    step = jax.jit(microbatched_value_and_grad(counted, microbatch_size=1))
    for seed in range(2):
        x, y = batch(seed)
        value, gradient = step(PARAMS, x.T, y)
        chex.assert_tree_all_finite((value, gradient))
        chex.assert_trees_all_equal_shapes_and_dtypes(gradient, PARAMS)


def test_evaluation_is_traced_once():
    run = jax.jit(chex.assert_max_traces(evaluate, n=1))
    for seed in range(2):
        x, y = batch(seed)
        run(network(PARAMS, x), y)
