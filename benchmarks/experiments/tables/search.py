"""A small random search, the same for all boosted trees. NumPy alone.

The first trial has the library's defaults. All trials of a program see the same rows; one tenth of
the training rows, held out, decides both how many trees a trial uses and which trial is kept. Then
all training rows are fitted with it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

TRIALS = 8
HELD_OUT = 0.1
PATIENCE = 50  # trees without a better held-out score

# Name of an argument -> (lowest, highest); drawn evenly in the logarithm, whole where both are.
Space = Mapping[str, tuple[float, float]]


class Trial(NamedTuple):
    """Settings, their held-out score (lower is better), and how many trees reached it."""

    settings: dict[str, Any]
    score: float
    trees: int


def draw_settings(space: Space, seed: int, trials: int = TRIALS) -> list[dict[str, Any]]:
    """The settings of all trials; those of the first are empty."""
    rng = np.random.default_rng(seed)
    drawn: list[dict[str, Any]] = [{}]
    for _ in range(trials - 1):
        drawn.append({name: _draw(rng, *bounds) for name, bounds in space.items()})
    return drawn


def best_trial(
    run: Callable[[dict[str, Any]], tuple[float, int]], space: Space, seed: int
) -> Trial:
    """The trial with the lowest held-out score; a score that is not finite never wins.

    Args:
        run: from settings to a held-out score and the number of trees behind it.
        space: what is searched.
        seed: of the draws.
    """
    trials = [Trial(one, *run(one)) for one in draw_settings(space, seed)]
    return min(trials, key=lambda trial: trial.score if math.isfinite(trial.score) else math.inf)


def held_out_tenth(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the held-out rows and of the others."""
    order = np.random.default_rng(seed).permutation(rows)
    number = max(1, round(HELD_OUT * rows))
    return order[:number], order[number:]


def gaussian_nll(targets: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Without its constant, the mean over the rows."""
    return float(np.mean(0.5 * np.log(variance) + 0.5 * (targets - mean) ** 2 / variance))


def _draw(rng: np.random.Generator, lowest: float, highest: float) -> float | int:
    is_whole = isinstance(lowest, int) and isinstance(highest, int)
    value = math.exp(rng.uniform(math.log(lowest), math.log(highest)))
    return round(value) if is_whole else value
