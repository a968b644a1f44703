"""Splits whose test rows lie between or beyond the training rows, and the published ones."""

import numpy as np

from benchmarks.experiments.uci.data import Split


def gap_split(split: Split, feature: int) -> Split:
    """All rows in the order of one feature: the middle third is tested, the rest trains."""
    third = (len(split.train_targets) + len(split.test_targets)) // 3
    return _held_out(split, feature, slice(third, 2 * third))


def edge_split(split: Split, feature: int) -> Split:
    """All rows in the order of one feature: the last sixth is tested, the rest trains."""
    sixth = (len(split.train_targets) + len(split.test_targets)) // 6
    return _held_out(split, feature, slice(-sixth, None))


def _held_out(split: Split, feature: int, part: slice) -> Split:
    inputs = np.concatenate([split.train_inputs, split.test_inputs])
    targets = np.concatenate([split.train_targets, split.test_targets])
    order = np.argsort(inputs[:, feature], kind="stable")
    tested, rest = order[part], np.delete(order, part)
    return Split(inputs[rest], targets[rest], inputs[tested], targets[tested])


def splits_for(kind: str, splits: list[Split], number: int) -> Split:
    """One split of a kind."""
    if kind == "random":
        return splits[number]
    held_out = {"gap": gap_split, "edge": edge_split}[kind]
    return held_out(splits[0], number)
