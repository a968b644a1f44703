"""Predictions with a known fault that is easily taken for another, and right ones beside them.

Each case draws inputs and targets, and says what the doctor must answer: the codes that it must
name, the one that must come first, and those that it must not name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.doctor import mistakes
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


def _without_inputs(made: Callable[[np.random.Generator, int], Draw]) -> Any:
    def draw(rng: np.random.Generator, points: int) -> Draw:
        dist, targets, _ = made(rng, points)
        return dist, targets, None

    return draw


def _unscaled(x: np.ndarray) -> np.ndarray:
    return 1000 + 300 * x


_read_as = mistakes.read_as

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
    "mean brought back, standard deviation not": Case(mistakes.std_left_behind, "overconfident"),
    "predictions of the targets' logarithms": Case(mistakes.of_log_targets, "mean_off"),
    "standard deviation passed as variance": Case(_read_as(np.log), "fields_mixed_up"),
    "variance passed as standard deviation": Case(
        _read_as(lambda std: 4 * np.log(std)), "fields_mixed_up"
    ),
    "variance passed as log-variance": Case(_read_as(np.square), "fields_mixed_up"),
    "standard deviation passed as log-variance": Case(_read_as(lambda std: std), "fields_mixed_up"),
    "mean and log-variance swapped": Case(mistakes.swapped_outputs, "fields_mixed_up"),
    "predictions and targets in different orders": Case(
        mistakes.shuffled_rows, "mean_uninformative"
    ),
    "missing targets stored as 0 (15 %)": Case(
        mistakes.placeholders(0.0, 0.15), "placeholder_targets"
    ),
    "missing targets stored as -999 (3 %)": Case(
        mistakes.placeholders(-999.0, 0.03), "placeholder_targets"
    ),
    "constant mean": Case(_without_inputs(mistakes.constant_mean), "mean_uninformative"),
    "constant mean, `inputs` given": Case(mistakes.constant_mean, "mean_misses_input"),
    "noise depends on an input that the variance ignores, `inputs` given": Case(
        mistakes.missed_noise, "variance_misplaced", ("heavy_tails",)
    ),
    "varying std, Student-t noise": Case(
        mistakes.other_noise(mistakes.student_t, 3.0), "heavy_tails"
    ),
    "skewed noise": Case(
        mistakes.other_noise(mistakes.skewed, 1.0), "wrong_shape", ("heavy_tails",)
    ),
    "noise with two peaks": Case(mistakes.other_noise(mistakes.two_groups, 1.0), "wrong_shape"),
    "right predictions, `inputs` given": Case(_read_as(lambda std: 2 * np.log(std)), None),
    "trained on unscaled inputs, `inputs` given": Case(
        mistakes.trained(trained_inputs=_unscaled, new_inputs=_unscaled), "input_scale_off"
    ),
    "trained on scaled inputs, evaluated on raw ones, `inputs` given": Case(
        mistakes.trained(new_inputs=_unscaled), "input_scale_off"
    ),
    "trained on unscaled targets": Case(
        _without_inputs(mistakes.trained(units=lambda y: 10_000 + 3_000 * y)), "target_scale_off"
    ),
    "trained on shuffled targets, `inputs` given": Case(
        mistakes.trained(shuffled=True), "mean_misses_input"
    ),
    "a linear model of a curve, `inputs` given": Case(
        mistakes.trained(linear=True), "mean_misses_input"
    ),
    "overfitted (100 rows, 6,000 steps)": Case(
        _without_inputs(mistakes.trained(rows=100, steps=6000, rate=0.02)), "overconfident"
    ),
    "the same, evaluated on leaked training rows": Case(
        _without_inputs(mistakes.trained(rows=100, steps=6000, rate=0.02, leaked=True)),
        "overconfident",
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
