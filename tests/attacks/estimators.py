"""Attacks on files of the estimator: whole artifacts, but of no estimator."""

import copy
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fisher8_jax.artifacts import ArtifactError, load_artifact, save_artifact
from fisher8_jax.estimator import Fisher8Regressor
from tests.attacks import BAD
from tests.attacks.artifacts import NASTY, places

MOST = 2**24  # bytes; the file has some kilobytes
ROWS = np.linspace(-1, 1, 40).reshape(20, 2)


def fit_small() -> Fisher8Regressor:
    """An estimator of two columns."""
    model = Fisher8Regressor(
        n_members=2, hidden_layer_sizes=(4,), max_steps=20, random_state=0, show_progress=False
    )
    return model.fit(ROWS, ROWS[:, 0] + np.sin(9 * ROWS[:, 1]))


def attack_estimators(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """One field or array is another one; the file must be refused, or predict."""
    fit_small().save(folder / "intact")
    intact, rng = load_artifact(folder / "intact"), random.Random(seed)
    found: Counter = Counter()
    while found.total() < rounds:
        content = copy.deepcopy({"config": intact.config, "trees": intact.trees})
        _change(content, rng)
        try:
            save_artifact(folder / "crafted", content["trees"], config=content["config"])
        except (TypeError, ValueError):  # no artifact can hold it
            continue
        found[try_estimator(folder / "crafted")] += 1
    return found


def try_estimator(path: Path) -> str:
    """What `load` makes of a file, and `predict` of what was loaded."""
    tracemalloc.start()
    try:
        loaded = Fisher8Regressor.load(path)
    except ArtifactError:
        return "refused" if _peak() < MOST else f"{BAD}memory"
    except Exception as error:
        return f"{BAD}{type(error).__name__} at loading"
    finally:
        peak = _peak()
        tracemalloc.stop()
    if peak > MOST:
        return f"{BAD}memory"
    try:
        mean, std = loaded.predict(ROWS, return_std=True)
    except Exception as error:
        return f"{BAD}{type(error).__name__} at predicting"
    is_right = mean.shape == std.shape == (len(ROWS),) and np.isfinite(mean).all()
    return "read as it is valid" if is_right else f"{BAD}silently wrong"


def _peak() -> int:
    return tracemalloc.get_traced_memory()[1]


def _change(content: dict[str, Any], rng: random.Random) -> None:
    parent, key = rng.choice([*places(content["config"]), *places(content["trees"])])
    if isinstance(parent[key], np.ndarray):
        parent[key] = rng.choice(CHANGES)(parent[key])
    elif rng.random() < 0.2:
        del parent[key]
    else:
        parent[key] = rng.choice(NASTY)


def _one_nan(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.flat[0] = np.nan
    return array


CHANGES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda array: array.T[..., None],
    lambda array: array.reshape(-1)[:0],
    lambda array: np.concatenate([array.reshape(-1), array.reshape(-1)]),
    lambda array: array[None],
    lambda array: array.reshape(-1)[0],
    lambda array: np.swapaxes(array, 0, -1)[::-1] if array.ndim else -array,
    lambda array: array.astype(np.float16),
    lambda array: array.astype(np.complex64),
    lambda array: array.astype(np.int32),
    lambda array: array.astype(bool),
    _one_nan,
]
