"""Splits whose test rows lie between the training rows, and the published random ones."""

import numpy as np

from benchmarks.experiments.uci.data import Split


def gap_split(split: Split, feature: int) -> Split:
    """All rows in the order of one feature: the middle third is tested, the rest trains."""
    inputs = np.concatenate([split.train_inputs, split.test_inputs])
    targets = np.concatenate([split.train_targets, split.test_targets])
    order = np.argsort(inputs[:, feature], kind="stable")
    third = len(targets) // 3
    middle, rest = order[third : 2 * third], np.r_[order[:third], order[2 * third :]]
    return Split(inputs[rest], targets[rest], inputs[middle], targets[middle])


def splits_for(kind: str, splits: list[Split], number: int) -> Split:
    """One split of a kind."""
    return gap_split(splits[0], number) if kind == "gap" else splits[number]
