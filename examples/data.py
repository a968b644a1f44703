"""The toy problem of all examples: the noise grows with the first input."""

import jax
import jax.numpy as jnp
from jax import Array


def make_data(rows: int = 256) -> tuple[Array, Array]:
    """Inputs (rows, 2) and targets (rows,) with `std = 0.1 + 0.4 * x`."""
    input_key, noise_key = jax.random.split(jax.random.key(0))
    inputs = jax.random.uniform(input_key, (rows, 2))
    std = 0.1 + 0.4 * inputs[:, 0]
    targets = jnp.sin(4 * inputs[:, 0]) + inputs[:, 1] + std * jax.random.normal(noise_key, (rows,))
    return inputs, targets
