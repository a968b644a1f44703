"""The exact natural gradient in parameter space, in Flax Linen, with an ordinary `apply`."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, network_gradient, network_optimizer


def main(steps=100):
    """Trains and returns the first and the last NLL."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.uniform(keys[0], (128, 2))
    y = jnp.sin(4 * x[:, 0]) + x[:, 1] + (0.1 + 0.4 * x[:, 0]) * jax.random.normal(keys[1], (128,))
    network = nn.Sequential([nn.Dense(32), nn.silu, nn.Dense(2)])
    params = network.init(keys[2], x[0])
    optimizer = network_optimizer(steps)
    state = optimizer.init(params)

    @jax.jit
    def train_step(params, state):
        def predict_one(params, x):
            return Gaussian(*network.apply(params, x))

        step = network_gradient(predict_one, params, x, y)
        updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
        return optax.apply_updates(params, updates), state, step.value

    values = []
    for _ in range(steps):
        params, state, value = train_step(params, state)
        values.append(value)
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
