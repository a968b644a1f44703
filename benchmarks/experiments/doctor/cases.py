"""Predictions with a known fault that once were called something else, and right ones beside them.

Each case draws inputs and targets, and says what the doctor must answer: the codes that it must
name, the one that must come first, and those that it must not name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import doctor
from fisher8_jax.families import Family

# Predictions, targets, and the inputs where the doctor is given them.
Draw = tuple[Family, Array, Array | None]


class Case(NamedTuple):
    """A fault and the right answer."""

    draw: Callable[[np.random.Generator, int], Draw]
    first: str | None
    """The code that must come first; None for a right model."""
    never: tuple[str, ...] = ()


def _noisy_at_the_end(rng: np.random.Generator, points: int) -> tuple[np.ndarray, ...]:
    """Inputs, mean, standard deviation and targets of noise that grows with the input."""
    x = rng.uniform(-2, 2, points)
    mean, std = np.sin(2 * x), np.exp(x - 1)
    return x, mean, std, mean + std * rng.normal(size=points)


def _gaussian(mean: np.ndarray, std: np.ndarray | float) -> Gaussian:
    log_variance = 2 * np.log(np.broadcast_to(std, mean.shape))
    return Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_variance, jnp.float32))


def _constant_std(rng: np.random.Generator, points: int) -> Draw:
    _, mean, std, targets = _noisy_at_the_end(rng, points)
    return _gaussian(mean, np.sqrt(np.mean(std**2))), jnp.asarray(targets, jnp.float32), None


def _constant_std_with_inputs(rng: np.random.Generator, points: int) -> Draw:
    x, mean, std, targets = _noisy_at_the_end(rng, points)
    dist = _gaussian(mean, np.sqrt(np.mean(std**2)))
    return dist, jnp.asarray(targets, jnp.float32), jnp.asarray(x, jnp.float32)


def _right_constant_std(rng: np.random.Generator, points: int) -> Draw:
    x = rng.uniform(-2, 2, points)
    targets = np.sin(2 * x) + 0.3 * rng.normal(size=points)
    inputs = jnp.asarray(x, jnp.float32)
    return _gaussian(np.sin(2 * x), 0.3), jnp.asarray(targets, jnp.float32), inputs


def _heavy_noise(rng: np.random.Generator, points: int) -> Draw:
    x = rng.uniform(-2, 2, points)
    noise = rng.standard_t(3, size=points)
    inputs = jnp.asarray(x, jnp.float32)
    dist = _gaussian(np.sin(2 * x), noise.std())  # right on average, as a fit would be
    return dist, jnp.asarray(np.sin(2 * x) + noise, jnp.float32), inputs


def _not_brought_back(rng: np.random.Generator, points: int) -> Draw:
    """Predictions of standardised targets, off by a tenth of a standard deviation."""
    _, mean, std, targets = _noisy_at_the_end(rng, points)
    return _gaussian(mean + 0.1, std), jnp.asarray(500 + 80 * targets, jnp.float32), None


CASES = {
    "constant std, noise that depends on the input": Case(_constant_std, "variance_constant"),
    "the same, `inputs` given": Case(
        _constant_std_with_inputs, "variance_constant", ("heavy_tails",)
    ),
    "constant std, Student-t noise, `inputs` given": Case(
        _heavy_noise, "heavy_tails", ("variance_constant",)
    ),
    "constant std that is right, `inputs` given": Case(_right_constant_std, None),
    "predictions not brought back to the targets' units": Case(
        _not_brought_back, "mean_off", ("target_scale_off",)
    ),
}


def judge_case(case: Case, draws: int, points: int) -> dict[str, Any]:
    """In how many draws the answer was right."""
    right = 0
    for seed in range(draws):
        dist, targets, inputs = case.draw(np.random.default_rng(seed), points)
        codes = doctor(dist, targets, inputs=inputs).codes
        first = codes[0] if codes else None
        right += first == case.first and not set(codes) & set(case.never)
    return {"first": case.first, "never": list(case.never), "right": right, "draws": draws}
