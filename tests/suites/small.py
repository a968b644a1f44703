"""What the suites share: a regressor that fits in a moment, data to check coverage on, a count."""

import sys
import traceback
from collections.abc import Callable, Mapping

import numpy as np

from fisher8_jax.estimator import Fisher8Regressor


class SmallRegressor(Fisher8Regressor):
    """One small network and few steps, without arguments, in the place of a linear regression."""

    def __init__(self):
        super().__init__(
            n_members=1, hidden_layer_sizes=(8,), max_steps=100, random_state=0, show_progress=False
        )


def make_data(seed: int = 0, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """A line with noise that grows along it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    return x, x[:, 0] + (0.2 + 0.15 * x[:, 0]) * rng.normal(size=rows)


def assert_covers(low: np.ndarray, high: np.ndarray, y: np.ndarray, confidence: float) -> None:
    """Within four standard errors of the targets and of as many rows that calibrated."""
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    error = 4 * np.sqrt(2 * confidence * (1 - confidence) / len(y))
    covered = np.mean((low <= y) & (y <= high))
    assert abs(covered - confidence) < error, (covered, confidence, error)


def run(title: str, checks: Mapping[str, Callable[[], object]]) -> None:
    """Runs every check, prints how many passed, and ends the program."""
    failed = 0
    for name, check in checks.items():
        try:
            check()
        except Exception:
            failed += 1
            print(f"{title}: {name} failed\n{traceback.format_exc()}", flush=True)
    report(title, len(checks) - failed, len(checks))


def report(title: str, passed: int, total: int, note: str = "") -> None:
    """Prints the count and ends the program."""
    print(f"{title}: {passed} of {total} passed{note}", flush=True)
    sys.exit(passed != total or total == 0)
