"""Numbers as a network wants them: bounded, of about unit size, none missing.

A number is centred at its median, scaled by its interquartile range and soft-clipped to (-3, 3):

    z / sqrt(1 + (z / 3)^2)

This is the robust scaling and smooth clipping of Holzmüller, Grinsztajn and Steinwart, "Better by
Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular Data", NeurIPS 2024
(https://arxiv.org/abs/2407.04491), known as skrub's `SquashingScaler`. Two things differ: the range
is divided by 1.349, so that z has unit variance for normal data, and a column whose quartiles
coincide is scaled by wider quantiles.

Beyond the training data the encoded value soon stops changing. How far a row lies beyond them is a
number of its own, `outside`, because a network is otherwise confident about inputs it never saw.
"""

from typing import Any, NamedTuple, Self

import numpy as np

# The bound of the soft clipping, in robust standard deviations, and where arithmetic ends.
_BOUND, _LARGEST = 3.0, 1e9

# How far beyond the range of the data an encoded value may go, as a part of the range.
_MARGIN = 0.2


class NumberCode(NamedTuple):
    """How a number is encoded; `scale` 0 drops a constant."""

    shift: float
    scale: float
    has_missing: bool
    low: float = 0.0
    """The smallest value of the data, in units of `scale` from `shift`."""
    high: float = 0.0

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        """Learns centre, scale and range."""
        known = values[np.isfinite(values)]
        has_missing = len(known) < len(values)
        if not len(known) or known.max() == known.min():
            centre = float(known[0]) if len(known) else 0.0
            return cls(centre, 0.0, has_missing and bool(len(known)))
        quantiles = np.quantile(known, (0.05, 0.25, 0.5, 0.75, 0.95))
        low, first, middle, third, high = quantiles.tolist()
        # In units of a normal distribution; wider quantiles where most values are the same.
        for spread in ((third - first) / 1.349, (high - low) / 3.29, _safe_std(known - middle)):
            if spread > 0:
                break
        low, high = _standardize(np.array([known.min(), known.max()]), middle, spread).tolist()
        return cls(middle, spread, has_missing, low, high)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The clipped number, and a column that flags missing values if there were some."""
        is_known = np.isfinite(values)
        columns = []
        if self.scale > 0:
            z = _standardize(np.where(is_known, values, self.shift), self.shift, self.scale)
            clipped, low, high = soft_clip(z), soft_clip(self.low), soft_clip(self.high)
            inside = np.clip(clipped, low, high)
            margin = _MARGIN * (high - low)
            columns.append(inside + margin * np.tanh((clipped - inside) / margin))
        if self.has_missing:
            columns.append(np.where(is_known, 0.0, 1.0))
        return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))

    def outside(self, values: np.ndarray) -> np.ndarray:
        """0 within the range of the data and a margin around it, 1 far beyond."""
        if self.scale == 0:
            return np.zeros(len(values))
        z = _standardize(np.where(np.isfinite(values), values, self.shift), self.shift, self.scale)
        margin = _MARGIN * (self.high - self.low)
        return np.tanh(0.5 * np.maximum(0.0, np.maximum(z - self.high, self.low - z) - margin))

    @classmethod
    def from_config(cls, fields: list[Any]) -> Self:
        """The code with these fields."""
        return cls(*fields)


def soft_clip(z: Any) -> Any:
    """Nearly z around 0, never beyond 3."""
    return z / np.sqrt(1 + (z / _BOUND) ** 2)


def _safe_std(distance: np.ndarray) -> float:
    """The root mean square, without overflow."""
    size = np.abs(distance).max()
    return float(size * np.sqrt(np.mean((distance / size) ** 2)))


def _standardize(values: np.ndarray, shift: float, scale: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.clip((values - shift) / scale, -_LARGEST, _LARGEST)
