"""Which rows each run learns from, which it holds out, and their order.

Row numbers are drawn with NumPy on the host: they cost nothing beside the training, can be given to
any other implementation, and no compiled program depends on the number of rows.
"""

from typing import NamedTuple

import numpy as np


class Folds(NamedTuple):
    """The row numbers that each run learns from and holds out, runs first."""

    train: np.ndarray
    held_out: np.ndarray


def make_folds(
    rng: np.random.Generator,
    rows: int,
    *,
    runs: int,
    held_out: float,
    strata: np.ndarray | None = None,
) -> Folds:
    """Each run holds out another part of one shuffled order, and begins again after the last.

    With `held_out` of a fifth, five runs together learn from every row and validate on every row.

    Args:
        rng: draws the order.
        rows: how many there are, at least 2 if any are held out.
        runs: the number of runs.
        held_out: the part of the rows that each run holds out; 0 for none.
        strata: one number per row; rows of the same number are spread evenly over the folds, so
            that no fold lacks what few rows have.

    Returns:
        Row numbers of shape (runs, rows of a fold).
    """
    order = rng.permutation(rows).astype(np.int32)
    if strata is not None:
        order = order[np.argsort(np.asarray(strata)[order], kind="stable")]
    if held_out == 0:
        return Folds(np.tile(order, (runs, 1)), np.zeros((runs, 0), np.int32))
    if rows < 2:
        raise ValueError(f"`data` must have at least 2 rows if some are held out, got {rows}.")
    size = min(max(1, round(held_out * rows)), rows - 1)
    # Evenly spaced places; shifted by less than their smallest distance they are others.
    places = np.arange(size) * rows // size
    shifts = [run % max(1, rows // size) for run in range(runs)]
    chosen = [(places + shift) % rows for shift in shifts]
    train = np.stack([np.delete(order, place) for place in chosen])
    return Folds(train, np.stack([order[place] for place in chosen]))


def batch_rows(
    seed: int,
    train_rows: np.ndarray,
    *,
    run: int,
    batch: int,
    first: int,
    steps: int,
    kept: dict[int, np.ndarray] | None = None,
) -> np.ndarray:
    """The rows of steps `first` to `first + steps` of one run, from shuffled epochs.

    Every epoch has an order of its own that depends on the seed, the run and its number alone, so
    a resumed training sees the same batches. Partial batches at the end of an epoch are
    left out; if there are fewer rows than a batch holds, all of them are in every batch, followed
    by -1.

    Args:
        seed: decides the orders, with run and epoch.
        train_rows: the numbers of the run's rows.
        run: which one.
        batch: rows per step.
        first: the number of steps before.
        steps: how many.
        kept: the orders of epochs that the last call needed, for the next one: a long epoch is
            not shuffled again for every few steps.
    """
    number = len(train_rows)
    used = min(batch, number)
    per_epoch = number // used
    epochs = range(first // per_epoch, (first + max(steps, 1) - 1) // per_epoch + 1)
    known = {} if kept is None else dict(kept)
    orders = {
        epoch: known[epoch]
        if epoch in known
        else np.random.default_rng((seed, run, epoch)).permutation(train_rows)[: per_epoch * used]
        for epoch in epochs
    }
    if kept is not None:
        kept.clear()
        kept.update(orders)
    skipped = first - epochs[0] * per_epoch
    rows = np.concatenate(list(orders.values())).reshape(-1, used)[skipped : skipped + steps]
    return np.pad(rows, ((0, 0), (0, batch - used)), constant_values=-1).astype(np.int32)
