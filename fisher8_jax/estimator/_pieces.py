"""Numbers as pieces of a piecewise-linear function, for networks that must learn steps and jumps.

A number becomes itself, as `_numbers` encodes it, and one column for each bin between neighbouring
*knots*: 0 below the bin, 1 above, linear inside. Knots are quantiles of the data, or all values if
there are few. A network of smooth units learns a jump between two values from one weight.

Reference:
    Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning,
    NeurIPS 2022 (https://arxiv.org/abs/2203.05556).
"""

from typing import Any, NamedTuple, Self

import numpy as np

from fisher8_jax.estimator._numbers import NumberCode

# At most so many bins of a column, and columns of all bins together.
_MOST_BINS, _MOST_COLUMNS = 16, 512

# The root mean square of all bins of a column together; that of the number itself is about 1.
_SIZE = 2.0


class PieceCode(NamedTuple):
    """How a number and its bins are encoded; without knots the number alone."""

    number: NumberCode
    knots: tuple[float, ...] = ()
    centres: tuple[float, ...] = ()
    """The mean of each bin's column."""
    scale: float = 0.0

    @classmethod
    def fit(cls, values: np.ndarray, columns: int = 1) -> Self:
        """Learns centre, scale and knots; `columns` is the number of numeric columns."""
        number, known = NumberCode.fit(values), values[np.isfinite(values)]
        bins = min(_MOST_BINS, _MOST_COLUMNS // columns)
        found = np.unique(known)
        if len(found) > bins + 1 >= 3:
            found = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1)))
        if not 3 <= len(found) <= bins + 1:
            return cls(number)
        pieces = _pieces(known, found)
        scale = _SIZE / float(np.sqrt(pieces.var(axis=0).sum()))
        return cls(number, tuple(found.tolist()), tuple(pieces.mean(axis=0).tolist()), scale)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The number, a column that flags missing values if there were some, and the bins.

        A missing value is in the middle of all bins.
        """
        encoded = self.number.encode(values)
        if not self.knots:
            return encoded
        is_known, centres = np.isfinite(values)[:, None], np.array(self.centres)
        pieces = _pieces(np.where(is_known[:, 0], values, 0.0), np.array(self.knots)) - centres
        return np.concatenate([encoded, np.where(is_known, self.scale * pieces, 0.0)], axis=1)

    def outside(self, values: np.ndarray) -> np.ndarray:
        """See `NumberCode`."""
        return self.number.outside(values)

    @classmethod
    def from_config(cls, fields: list[Any]) -> Self:
        """The code with these fields."""
        number, knots, centres, scale = fields
        return cls(NumberCode(*number), tuple(knots), tuple(centres), scale)


def _pieces(values: np.ndarray, knots: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.clip((values[:, None] - knots[:-1]) / np.diff(knots), 0, 1)
