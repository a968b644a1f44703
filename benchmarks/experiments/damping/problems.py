"""Two made-up regressions at the ends of the range: a stiff one and a noisy one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

TEST_ROWS = 2000


class Data(NamedTuple):
    """Standardised inputs and targets for training and for judging."""

    inputs: Array
    targets: Array
    test_inputs: Array
    test_targets: Array


def wave(key: Array, rows: int) -> tuple[Array, Array]:
    """Four periods of a sine with little noise: all directions of the network matter."""
    input_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(input_key, (rows, 1), minval=-1.7, maxval=1.7)
    noise = 0.05 * jax.random.normal(noise_key, (rows,))
    return x, jnp.sqrt(2.0) * (jnp.sin(7.4 * x[:, 0]) + noise)


def table(key: Array, rows: int) -> tuple[Array, Array]:
    """Eight inputs, three of which matter, and noise as large as the signal."""
    input_key, noise_key = jax.random.split(key)
    x = jax.random.normal(input_key, (rows, 8))
    signal = jnp.tanh(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    noise = jnp.exp(0.4 * x[:, 0]) * jax.random.normal(noise_key, (rows,))
    return x, 0.7 * (signal + noise)


PROBLEMS = {"wave": wave, "table": table}


def draw(problem: str, seed: Array, rows: int) -> Data:
    train_key, test_key = jax.random.split(jax.random.key(seed))
    make = PROBLEMS[problem]
    return Data(*make(train_key, rows), *make(test_key, TEST_ROWS))
