"""The exact natural gradient in parameter space, in Equinox: models map one example anyway."""

import equinox as eqx
import jax
import jax.numpy as jnp

from fisher8_jax import Gaussian, network_gradient, network_optimizer


@eqx.filter_jit
def train_step(optimizer, model, state, x, y):
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def predict_one(params, x):
        return Gaussian(*eqx.combine(params, static)(x))

    step = network_gradient(predict_one, params, x, y)
    updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
    return eqx.apply_updates(model, updates), state, step.value


def main(steps=100):
    """Trains and returns the first and the last NLL."""
    keys, values = jax.random.split(jax.random.key(0), 3), []
    x = jax.random.uniform(keys[0], (128, 2))
    y = jnp.sin(4 * x[:, 0]) + x[:, 1] + (0.1 + 0.4 * x[:, 0]) * jax.random.normal(keys[1], (128,))
    model = eqx.nn.MLP(2, 2, 32, 1, jax.nn.silu, key=keys[2])
    optimizer = network_optimizer(steps)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    for _ in range(steps):
        model, state, value = train_step(optimizer, model, state, x, y)
        values.append(value)
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
