"""Fisher8 composes with any Optax chain."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import fisher8_nll
from tests.problem import make_problem, predict

CHAINS = {
    "sgd": optax.sgd(0.01),
    "momentum": optax.sgd(0.003, momentum=0.9, nesterov=True),
    "adam": optax.adam(0.01),
    "adamw": optax.adamw(0.01, weight_decay=1e-3),
    "lion": optax.lion(0.003),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.02)),
    "injected": optax.inject_hyperparams(optax.sgd)(learning_rate=0.01),
    "apply_if_finite": optax.apply_if_finite(optax.sgd(0.01), max_consecutive_errors=3),
    "masked": optax.chain(
        optax.masked(optax.scale(0.5), {"hidden": True, "mean": False, "log_variance": False}),
        optax.sgd(0.01),
    ),
    "schedule": optax.sgd(optax.cosine_decay_schedule(0.02, 50)),
}


def train(optimizer, steps=50):
    params, x, _ = make_problem(rows=64)
    # Something to learn: the first input moves the means, the second the spread.
    noise = jnp.asarray(np.random.default_rng(1).normal(size=(64, 2)), jnp.float32)
    y = x[:, :1] + jnp.exp(0.5 * x[:, 1:2]) * noise

    def loss(params):
        return fisher8_nll(predict(params, x), y).mean()

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    start = (params, optimizer.init(params))
    return jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps))(start)[1]


@pytest.mark.parametrize("name", CHAINS)
def test_fifty_steps_reduce_the_loss(name):
    losses = train(CHAINS[name])
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] - 0.1
