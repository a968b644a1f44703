"""Fisher8 with the KL radius in Equinox: the plain JAX step, the model itself as parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.optimizers import scale_by_kl_radius


def predict(model, inputs):
    mean, log_variance = jnp.moveaxis(jax.vmap(model)(inputs), -1, 0)
    return Gaussian(mean, log_variance)


@eqx.filter_jit
def train_step(optimizer, model, state, inputs, targets):
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def of_params(params):
        return predict(eqx.combine(params, static), inputs)

    def loss(params):
        return fisher8(of_params(params)).nll(targets).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(gradients, state, params, predict=of_params)
    return eqx.combine(optax.apply_updates(params, updates), static), state, value


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
    model = eqx.nn.MLP(2, 2, 32, 1, jax.nn.silu, key=jax.random.key(0))
    radius = scale_by_kl_radius(optax.polynomial_schedule(0.01, 0.0, 2, steps))
    optimizer = optax.chain(optax.adam(1.0), radius)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    values = []
    for _ in range(steps):
        model, state, value = train_step(optimizer, model, state, inputs, targets)
        values.append(float(value))
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
