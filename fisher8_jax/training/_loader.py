"""Rows of data as the compiled loop takes them: batches of many steps and runs, and validation."""

import chex
import jax
import numpy as np

from fisher8_jax._internal.axes import append_axes
from fisher8_jax.training._data import Data
from fisher8_jax.training._rows import Folds, batch_rows

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
