"""Training data: rows that belong together, and batches of them in a random order."""

from typing import NamedTuple, TypeAlias

import chex
import jax
import numpy as np

from fisher8_jax._internal.checks import check_host_array
from fisher8_jax._internal.trees import append_axes

Params: TypeAlias = chex.ArrayTree
Variables: TypeAlias = chex.ArrayTree
Metrics: TypeAlias = dict[str, jax.Array]


class Data(NamedTuple):
    """Arrays with the examples first: those of a training, or the batch of one step.

    Args:
        inputs: an array, or a tree of arrays if the network takes several.
        targets: observed values; nan only where `where` is False.
        where: boolean, False for missing targets and padding; the shape of the predictions.
        weights: the importance of each target; the shape of the predictions.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.training import Data
        >>> targets = np.array([1.0, np.nan, 3.0])
        >>> Data(np.ones((3, 2)), targets, where=~np.isnan(targets)).rows
        3
    """

    inputs: chex.ArrayTree
    targets: chex.Array
    where: chex.Array | None = None
    weights: chex.Array | None = None

    @property
    def rows(self) -> int:
        """The number of examples."""
        return len(self.targets)


def check_data(name: str, data: tuple) -> Data:
    """Data as NumPy arrays of numbers, all of the same length; masked arrays are refused."""
    parts = Data(*data)._asdict().items()
    found = Data(
        *(
            jax.tree.map(lambda leaf, part=part: check_host_array(part, leaf), tree)
            for part, tree in parts
        )
    )
    _check_some_count(name, found)
    lengths = {len(leaf) for leaf in jax.tree.leaves(found)}
    if len(lengths) != 1:
        raise ValueError(
            f"All arrays of `{name}` must have the same number of examples, got "
            f"{', '.join(map(str, sorted(lengths)))}."
        )
    targets = np.asarray(found.targets)
    number = int(np.isnan(targets).sum()) if np.issubdtype(targets.dtype, np.floating) else 0
    if number and found.where is None:
        raise ValueError(
            f"`targets` of `{name}` must not be nan, got {number} that are. Mask missing ones: "
            "`Data(inputs, targets, where=~np.isnan(targets))`."
        )
    return found


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


def given_folds(held_out: np.ndarray, rows: int, runs: int) -> Folds:
    """Folds whose held-out rows are given; each run learns from all others."""
    chosen = np.asarray(held_out)
    if chosen.ndim != 2 or len(chosen) != runs or chosen.dtype.kind not in "iu":
        raise ValueError(
            f"`held_out` must be row numbers of shape ({runs}, rows), got {chosen.dtype} of shape "
            f"{chosen.shape}."
        )
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < rows:
        raise ValueError(f"`held_out` must be row numbers from 0 to {rows - 1}.")
    order = np.arange(rows, dtype=np.int32)
    left = [np.delete(order, run) for run in chosen]
    if not all(0 < len(run) == rows - chosen.shape[1] for run in left):
        raise ValueError("`held_out` must leave rows to learn from and name none twice in a run.")
    return Folds(np.stack(left), chosen.astype(np.int32))


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


# Validation rows come in blocks of one shape, so that one program serves any number of rows.
_BLOCK = 512

# The batches of one call of the compiled loop hold at most this many numbers and steps.
_CHUNK_NUMBERS, _CHUNK_STEPS = 2**22, 64

# A batch larger than the data is padded to at least this many rows, so that small tables share
# programs.
_SMALLEST_PADDED = 64


class BatchLoader:
    """Gathers batches on the host.

    Args:
        data: all rows.
        folds: which of them each run learns from and is validated on.
        batch_size: examples per step. Where a run has fewer, the batch is padded and masked, so
            that its shape does not depend on the number of rows, up to the next power of two.
        seed: decides the order of the rows.
        event_ndim: the number of axes of one target, 0 for scalar likelihoods.
        validation: rows that all runs are validated on, instead of those of the folds.
    """

    def __init__(
        self,
        data: Data,
        folds: Folds,
        *,
        batch_size: int,
        seed: int,
        event_ndim: int = 0,
        validation: Data | None = None,
    ):
        self.data, self.folds, self.validation = data, folds, validation
        self.event_ndim, self.seed = event_ndim, seed
        rows = folds.train.shape[1]
        self.batch_size = min(batch_size, max(_SMALLEST_PADDED, 1 << (rows - 1).bit_length()))
        self._orders: list[dict[int, np.ndarray]] = [{} for _ in folds.train]

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.folds.train)

    @property
    def chunk(self) -> int:
        """The largest number of steps in one call of the compiled loop."""
        numbers = sum(leaf[:1].size for leaf in jax.tree.leaves(self.data))
        per_step = self.runs * self.batch_size * max(1, numbers)
        return max(1, min(_CHUNK_STEPS, _CHUNK_NUMBERS // per_step))

    def batches(self, first: int, steps: int) -> Data:
        """The batches from step `first` on; leaves of shape (chunk, runs, batch, ...).

        Steps after `steps` are padding.
        """
        rows = [
            batch_rows(
                self.seed, train, run=run, batch=self.batch_size, first=first, steps=steps,
                kept=self._orders[run],
            )
            for run, train in enumerate(self.folds.train)
        ]  # fmt: skip
        masked = self.batch_size > self.folds.train.shape[1]
        found = self._gather(self.data, np.stack(rows, axis=1), masked=masked)
        return jax.tree.map(lambda leaf: _pad(leaf, self.chunk), found)

    def validation_blocks(self) -> list[Data]:
        """All validation rows; leaves of shape (runs, block, ...), or (block, ...) if shared."""
        data, rows = self.data, self.folds.held_out
        if self.validation is not None:
            data, rows = self.validation, np.arange(self.validation.rows)
        blocks = []
        for first in range(0, rows.shape[-1], _BLOCK):
            block = rows[..., first : first + _BLOCK]
            fill = [(0, 0)] * (rows.ndim - 1) + [(0, _BLOCK - block.shape[-1])]
            block = np.pad(block, fill, constant_values=-1)
            blocks.append(self._gather(data, block, masked=True))
        return blocks

    def _gather(self, data: Data, rows: np.ndarray, *, masked: bool) -> Data:
        """Looks rows up; -1 stands for padding."""
        found = jax.tree.map(lambda leaf: leaf[rows], data)
        if not masked:
            return found
        where = found.where
        if where is None:
            shape = data.targets.shape[1 : data.targets.ndim - self.event_ndim]
            where = np.ones(rows.shape + shape, bool)
        return found._replace(where=where & append_axes(rows >= 0, where.ndim))


def _pad(leaf: chex.Array, length: int) -> np.ndarray:
    """Filled up with zeros to `length` steps."""
    return np.pad(leaf, [(0, length - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))


def _check_some_count(name: str, data: Data) -> None:
    """Refuses negative weights, and data without any target that counts."""
    weights = data.weights
    if weights is not None and np.any(np.asarray(weights) < 0):
        raise ValueError(f"`weights` of `{name}` must not be negative.")
    given = [part for part in (data.where, weights) if part is not None]
    is_blind = name == "data" and not all(np.any(part) for part in given)
    if not np.size(data.targets) or is_blind:  # a validation without targets has the score nan
        raise ValueError(
            f"`{name}` has no target to learn from: no rows, or `where` and `weights` leave none."
        )
