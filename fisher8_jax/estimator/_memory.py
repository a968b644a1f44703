"""The rows that a fitted estimator remembers, so that later training does not forget them.

They are the data of the posterior from which `partial_fit` goes on. Each member goes on holding out
the rows that it held out before, and a part of the new ones. Beyond `MOST_ROWS` a random part is
kept, each row with the weight of those it stands for.
"""

from typing import NamedTuple

import numpy as np

from fisher8_jax.estimator._training import Rows

MOST_ROWS = 20_000


class Memory(NamedTuple):
    """Rows in the encoding of the estimator, and which of them each run holds out."""

    rows: Rows
    outside: np.ndarray
    """How far each row lies outside the data of the first fit."""
    held_out: np.ndarray
    """Row numbers, runs first."""

    def joined(self, rows: Rows, outside: np.ndarray, fraction: float, seed: int) -> "Memory":
        """With new rows, of which each run holds out another part."""
        old, new, runs = len(self.rows.inputs), len(rows.inputs), len(self.held_out)
        size = max(1, round(fraction * new)) if new > 1 else 0
        order = np.random.default_rng((seed, 4)).permutation(new)
        places = [np.arange(run * size, (run + 1) * size) % new for run in range(runs)]
        added = old + order[np.stack(places)].astype(self.held_out.dtype)
        every = Rows(*map(np.concatenate, zip(self.rows, rows, strict=True)))
        every = every._replace(weights=every.weights / every.weights.mean())
        held_out = np.concatenate([self.held_out, added], axis=1)
        return Memory(every, np.concatenate([self.outside, outside]), held_out)

    def limited(self, seed: int, most: int = MOST_ROWS) -> "Memory":
        """At most so many rows; every run keeps the same number of held-out ones."""
        number = len(self.rows.inputs)
        if number <= most:
            return self
        kept = np.sort(np.random.default_rng((seed, 5)).permutation(number)[:most])
        place = np.full(number, -1, self.held_out.dtype)
        place[kept] = np.arange(most)
        left = [run[run >= 0] for run in place[self.held_out]]
        size = min(map(len, left))
        rows = Rows(*(column[kept] for column in self.rows))
        return Memory(rows, self.outside[kept], np.stack([run[:size] for run in left]))


def check_memory(memory: Memory | None) -> Memory:
    """Refuses to go on without the rows of the past."""
    if memory is None:
        raise ValueError(
            "This estimator was loaded from a file without its rows, so `partial_fit` would forget "
            "them. Save it with `with_rows=True`, or `fit` it to all rows."
        )
    return memory
