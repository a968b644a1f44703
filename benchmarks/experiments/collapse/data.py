"""The sets of the grid, cut and padded; `tables.data` reads them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.experiments.collapse.plan import (
    LOOKED_AT,
    MOST_TEST_ROWS,
    MOST_TRAIN_ROWS,
    TABLES,
)
from benchmarks.experiments.tables import data as tables_data
from benchmarks.experiments.uci.data import DATASETS, Split, standardize
from benchmarks.machinery.seeds import generator

SETS = (*DATASETS, *TABLES)
FEATURES = 26  # of the widest set, pol; others are filled up with zero columns


class Arrays(NamedTuple):
    """Splits of several sets, padded to one shape; the first axis is (set, seed)."""

    features: np.ndarray
    train_inputs: np.ndarray
    train_targets: np.ndarray
    train_rows: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    test_mask: np.ndarray


def load(name: str, path: Path, seeds: int) -> list[Split]:
    """The first `seeds` splits, standardised, at most `MOST_TRAIN_ROWS` rows to learn from."""
    splits = tables_data.load(path)[:seeds]
    return [_cut(name, seed, standardize(split).split) for seed, split in enumerate(splits)]


def _cut(name: str, seed: int, split: Split) -> Split:
    """Fewer rows of large sets, at random."""
    rng = generator("collapse", name, seed, "rows")
    train = rng.permutation(len(split.train_targets))[:MOST_TRAIN_ROWS]
    test = rng.permutation(len(split.test_targets))[:MOST_TEST_ROWS]
    return Split(
        split.train_inputs[train],
        split.train_targets[train],
        split.test_inputs[test],
        split.test_targets[test],
    )


def stack(splits: list[Split]) -> Arrays:
    """All splits in one shape."""
    train_rows = np.array([len(s.train_targets) for s in splits])
    test_rows = np.array([len(s.test_targets) for s in splits])
    most = max(int(train_rows.max()), LOOKED_AT)
    return Arrays(
        features=np.array([s.train_inputs.shape[1] for s in splits]),
        train_inputs=np.stack([_pad(s.train_inputs, most) for s in splits]),
        train_targets=np.stack([_pad(s.train_targets, most) for s in splits]),
        train_rows=train_rows,
        test_inputs=np.stack([_pad(s.test_inputs, MOST_TEST_ROWS) for s in splits]),
        test_targets=np.stack([_pad(s.test_targets, MOST_TEST_ROWS) for s in splits]),
        test_mask=np.arange(MOST_TEST_ROWS) < test_rows[:, None],
    )


def _pad(array: np.ndarray, rows: int) -> np.ndarray:
    fill = [(0, rows - len(array))]
    if array.ndim == 2:
        fill.append((0, FEATURES - array.shape[1]))
    return np.pad(array, fill).astype(np.float32)
