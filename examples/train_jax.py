"""Fisher8 with the KL radius in plain JAX: any function from parameters to a distribution."""

import functools

import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.optimizers import scale_by_kl_radius


def network(params, inputs):
    hidden = jax.nn.silu(inputs @ params["w1"] + params["b1"])
    mean, log_variance = jnp.moveaxis(hidden @ params["w2"], -1, 0)
    return Gaussian(mean, log_variance)


@functools.partial(jax.jit, static_argnums=0)
def train_step(optimizer, params, state, inputs, targets):
    def loss(params):
        return fisher8(network(params, inputs)).nll(targets).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    predict = functools.partial(network, inputs=inputs)
    updates, state = optimizer.update(gradients, state, params, predict=predict)
    return optax.apply_updates(params, updates), state, value


def make_data(rows=256):
    """Inputs (rows, 2) and targets (rows,) whose noise grows with the first input."""
    input_key, noise_key = jax.random.split(jax.random.key(0))
    inputs = jax.random.uniform(input_key, (rows, 2))
    std = 0.1 + 0.4 * inputs[:, 0]
    targets = jnp.sin(4 * inputs[:, 0]) + inputs[:, 1] + std * jax.random.normal(noise_key, (rows,))
    return inputs, targets


def main(steps: int = 200) -> tuple[float, float]:
    """Trains and returns the first and the last NLL."""
    inputs, targets = make_data()
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "w1": jax.random.normal(keys[0], (2, 32)),
        "b1": jnp.zeros((1, 32)),
        "w2": 0.1 * jax.random.normal(keys[1], (32, 2)),
    }
    radius = scale_by_kl_radius(optax.polynomial_schedule(0.01, 0.0, 2, steps))
    optimizer = optax.chain(optax.adam(1.0), radius)
    state = optimizer.init(params)
    values = []
    for _ in range(steps):
        params, state, value = train_step(optimizer, params, state, inputs, targets)
        values.append(float(value))
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
