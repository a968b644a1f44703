"""Rows of data as the loop wants them: batches of many steps and lanes, and held-out blocks."""

from typing import NamedTuple

import chex
import jax
import numpy as np

from fisher8_jax._internal.axes import append_axes
from fisher8_jax._internal.checks import check_host_array
from fisher8_jax.training._rows import Folds, batch_rows
from fisher8_jax.training._step import Batch

# Held-out rows come in blocks of one shape, so that one program serves any number of rows.
_BLOCK = 512

# The batches of one call of the compiled loop hold at most so many numbers.
_CHUNK_NUMBERS, _CHUNK_STEPS = 2**22, 64


class Data(NamedTuple):
    """Arrays with the examples first.

    Args:
        inputs: an array, or a tree of arrays if the network takes several.
        targets: observed values; nan only where `where` is False.
        where: boolean, False for missing targets; the shape of the predictions.
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


def on_host(data: Data) -> Data:
    """The same data as NumPy arrays of numbers; masked arrays and objects are refused."""
    parts = data._asdict().items()
    return Data(
        *(
            jax.tree.map(lambda leaf, name=name: check_host_array(name, leaf), part)
            for name, part in parts
        )
    )


class Feed:
    """Gathers on the host what the compiled loop is given.

    Args:
        data: all rows.
        folds: which of them each lane learns from and is judged by.
        batch_size: examples per step. Where a lane has fewer, the batch is padded and masked, so
            that its shape does not depend on the number of rows.
        seed: decides the order of the rows.
        event_ndim: the number of axes of one target, 0 for scalar likelihoods.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.training import Data, Feed, make_folds
        >>> folds = make_folds(np.random.default_rng(0), 50, lanes=2, held_out=0.2)
        >>> feed = Feed(Data(np.ones((50, 3)), np.ones(50)), folds, batch_size=8, seed=0)
        >>> feed.batches(first=0, steps=5).inputs.shape
        (5, 2, 8, 3)
    """

    def __init__(
        self, data: Data, folds: Folds, *, batch_size: int, seed: int, event_ndim: int = 0
    ):
        self.data = on_host(data)
        self.event_ndim = event_ndim
        self.folds = folds
        self.batch_size = batch_size
        self.seed = seed
        self._orders: list[dict[int, np.ndarray]] = [{} for _ in folds.train]

    @property
    def lanes(self) -> int:
        """The number of trainings."""
        return len(self.folds.train)

    @property
    def chunk(self) -> int:
        """How many steps one call of the compiled loop makes at most."""
        numbers = sum(leaf[:1].size for leaf in jax.tree.leaves(self.data))
        per_step = self.lanes * self.batch_size * max(1, numbers)
        return max(1, min(_CHUNK_STEPS, _CHUNK_NUMBERS // per_step))

    def batches(self, first: int, steps: int) -> Batch:
        """The batches from step `first` on; every leaf of shape (steps, lanes, batch, ...)."""
        rows = [
            batch_rows(
                self.seed, train, lane=lane, batch=self.batch_size, first=first, steps=steps,
                kept=self._orders[lane],
            )
            for lane, train in enumerate(self.folds.train)
        ]  # fmt: skip
        return self._gather(np.stack(rows, axis=1))

    def held_out_blocks(self) -> list[Batch]:
        """All held-out rows; every leaf of shape (lanes, rows of a block, ...)."""
        held_out = self.folds.held_out
        blocks = []
        for first in range(0, held_out.shape[1], _BLOCK):
            rows = held_out[:, first : first + _BLOCK]
            fill = ((0, 0), (0, _BLOCK - rows.shape[1]))
            rows = np.pad(rows, fill, constant_values=-1)
            blocks.append(self._gather(rows, always_masked=True))
        return blocks

    def _gather(self, rows: np.ndarray, *, always_masked: bool = False) -> Batch:
        """Looks rows up; -1 stands for padding."""
        inputs, targets, where, weights = jax.tree.map(lambda leaf: leaf[rows], self.data)
        if always_masked or self.batch_size > self.folds.train.shape[1]:
            is_row = rows >= 0
            if where is None:
                shape = self.data.targets.shape[1 : self.data.targets.ndim - self.event_ndim]
                inside = append_axes(is_row, rows.ndim + len(shape))
                where = np.broadcast_to(inside, rows.shape + shape)
            else:
                where = where & append_axes(is_row, where.ndim)
        return Batch(inputs, targets, where, weights)
