"""Which rows are learned from, which are held out, and in what order they come.

Row numbers are drawn with NumPy on the host: they cost nothing beside the training, can be given to
any other implementation, and no compiled program depends on how many rows there are.
"""

from typing import NamedTuple

import numpy as np


class Folds(NamedTuple):
    """The row numbers that each lane learns from and is judged by, lanes first.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.training import Folds
        >>> Folds(train=np.array([[0, 1, 2]]), held_out=np.array([[3]])).train.shape
        (1, 3)
    """

    train: np.ndarray
    held_out: np.ndarray


def make_folds(
    rng: np.random.Generator,
    rows: int,
    *,
    lanes: int,
    held_out: float,
    strata: np.ndarray | None = None,
) -> Folds:
    """Each lane holds out another part of one shuffled order, and begins again after the last.

    With `held_out` of a fifth, five lanes together learn from every row and are judged by every
    row.

    Args:
        rng: draws the order.
        rows: how many there are, at least 2 if any are held out.
        lanes: how many trainings.
        held_out: the part of the rows that each lane holds out; 0 for none.
        strata: one number per row; rows of the same number are spread evenly over the folds, so
            that no fold lacks what few rows have.

    Returns:
        Row numbers of shape (lanes, rows of a fold).

    Example:
        >>> import numpy as np
        >>> folds = make_folds(np.random.default_rng(0), 10, lanes=5, held_out=0.2)
        >>> folds.train.shape, sorted(folds.held_out.ravel().tolist())
        ((5, 8), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    order = rng.permutation(rows).astype(np.int32)
    if strata is not None:
        order = order[np.argsort(np.asarray(strata)[order], kind="stable")]
    if held_out == 0:
        return Folds(np.tile(order, (lanes, 1)), np.zeros((lanes, 0), np.int32))
    if rows < 2:
        raise ValueError(f"`rows` must be at least 2 if some are held out, got {rows}.")
    size = min(max(1, round(held_out * rows)), rows - 1)
    # Evenly spaced places; shifted by less than their smallest distance they are others.
    places = np.arange(size) * rows // size
    shifts = [lane % max(1, rows // size) for lane in range(lanes)]
    chosen = [(places + shift) % rows for shift in shifts]
    train = np.stack([np.delete(order, place) for place in chosen])
    return Folds(train, np.stack([order[place] for place in chosen]))


def batch_rows(
    seed: int,
    train_rows: np.ndarray,
    *,
    lane: int,
    batch: int,
    first: int,
    steps: int,
    kept: dict[int, np.ndarray] | None = None,
) -> np.ndarray:
    """The rows of steps `first` to `first + steps` of one lane, from shuffled epochs.

    Every epoch has an order of its own that depends on the seed, the lane and its number alone, so
    a training that is resumed sees the same batches. Partial batches at the end of an epoch are
    left out; if there are fewer rows than a batch holds, all of them are in every batch, followed
    by -1.

    Args:
        seed: decides the orders, with lane and epoch.
        train_rows: the numbers of the lane's rows.
        lane: which one.
        batch: rows per step.
        first: the number of steps before.
        steps: how many are wanted.
        kept: the orders of epochs that the last call needed, for the next one: a long epoch is
            not shuffled again for every few steps.

    Example:
        >>> import numpy as np
        >>> rows = batch_rows(0, np.arange(6), lane=0, batch=2, first=0, steps=3)
        >>> rows.shape, sorted(rows.ravel().tolist())
        ((3, 2), [0, 1, 2, 3, 4, 5])
    """
    number = len(train_rows)
    used = min(batch, number)
    per_epoch = number // used
    epochs = range(first // per_epoch, (first + max(steps, 1) - 1) // per_epoch + 1)
    known = {} if kept is None else dict(kept)
    orders = {
        epoch: known[epoch]
        if epoch in known
        else np.random.default_rng((seed, lane, epoch)).permutation(train_rows)[: per_epoch * used]
        for epoch in epochs
    }
    if kept is not None:
        kept.clear()
        kept.update(orders)
    skipped = first - epochs[0] * per_epoch
    rows = np.concatenate(list(orders.values())).reshape(-1, used)[skipped : skipped + steps]
    return np.pad(rows, ((0, 0), (0, batch - used)), constant_values=-1).astype(np.int32)
