"""Regressions whose noise is known, so that the NLL of the truth is."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.experiments.one_default.plan import ROWS, TEST_ROWS
from benchmarks.machinery.seeds import generator

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Data(NamedTuple):
    """Rows in units of the training rows, and the mean NLL of the truth on the test rows."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    true_nll: float


def friedman(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Friedman's first function of five of ten inputs; a sixth rules the noise."""
    x = rng.uniform(0, 1, (rows, 10))
    mean = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * np.square(x[:, 2] - 0.5)
    return x, mean + 10 * x[:, 3] + 5 * x[:, 4], np.exp(2 * x[:, 5] - 1)


def jumps(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A mean and a standard deviation that jump."""
    x = rng.uniform(-1, 1, (rows, 3))
    mean = np.floor(2 * x[:, 0]) + 2.0 * ((x[:, 1] > 0.3) & (x[:, 0] < 0.2))
    return x, mean, np.where(x[:, 2] > 0, 0.3, 0.05)


def heavy_tails(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs from Student's distribution with three degrees of freedom."""
    x = rng.standard_t(3, (rows, 5))
    mean = 2 * np.tanh(x[:, 0]) + np.sin(x[:, 1])
    return x, mean, 0.1 + 0.5 / (1 + np.exp(-x[:, 2]))


DRAWS: dict[str, Draw] = {"friedman": friedman, "jumps": jumps, "heavy_tails": heavy_tails}


def draw(problem: str, seed: int) -> Data:
    """The rows of one seed."""
    rng = generator("one_default", problem, seed)
    (x, mean, std), (tx, tmean, tstd) = (DRAWS[problem](rng, n) for n in (ROWS, TEST_ROWS))
    y, ty = mean + std * rng.normal(size=ROWS), tmean + tstd * rng.normal(size=TEST_ROWS)
    log_density = np.square((ty - tmean) / tstd) / 2 + np.log(tstd * np.sqrt(2 * np.pi))
    scale = y.std()
    arrays = ((x - x.mean(0)) / x.std(0), (y - y.mean()) / scale)
    tests = ((tx - x.mean(0)) / x.std(0), (ty - y.mean()) / scale)
    a, b, c, d = (array.astype(np.float32) for array in (*arrays, *tests))
    return Data(a, b, c, d, float(log_density.mean() - np.log(scale)))
