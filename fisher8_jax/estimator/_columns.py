"""Columns of a table as a network wants them: bounded numbers of about unit size, none missing.

A *number* is centred at its median, divided by its quartiles' distance and bent by

    z / sqrt(1 + (z / 3)^2)

so that a wild outlier does not become large. Outside the range of the data it soon stands still,
and how far outside a row lies is a number of its own, `outside`: the networks would be sure of
something that they cannot know. Missing values become 0 with a column of their own that says so,
whose weights the network learns. A *category* becomes one column per level; a level that was never
seen is the average one. A *time* becomes its distance, and its place in the day, the week and the
year where the data cover several of them.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np

from fisher8_jax.estimator._frames import Column, Kind

# Beyond this many levels the rarest are taken together as one.
MAX_LEVELS = 32

# Where the bend begins, in robust standard deviations, and where arithmetic ends.
_BEND, _LARGEST = 3.0, 1e9

# How far outside the range of the data an input may go, as a part of the range.
_MARGIN = 0.2

# Periods in seconds; the year is the mean one.
_PERIODS = {"day": 86_400.0, "week": 604_800.0, "year": 31_556_952.0}


class NumberCode(NamedTuple):
    """How a number is encoded; `scale` 0 drops a constant."""

    shift: float
    scale: float
    has_missing: bool
    low: float = 0.0
    """The smallest value of the data, in units of `scale` from `shift`."""
    high: float = 0.0


class CategoryCode(NamedTuple):
    """The levels that have a column, and how often each was seen."""

    levels: tuple[str, ...]
    shares: tuple[float, ...]


class TimeCode(NamedTuple):
    """The distance as a number, and the periods whose phase is used."""

    distance: NumberCode
    periods: tuple[str, ...]


Code = NumberCode | CategoryCode | TimeCode
_CODES: dict[str, Any] = {"number": NumberCode, "category": CategoryCode, "time": TimeCode}


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Encodes tables with the columns that it was fitted to."""

    kinds: tuple[Kind, ...]
    codes: tuple[Code, ...]

    @classmethod
    def fit(cls, columns: list[Column]) -> "Encoder":
        """Learns centres, scales and levels."""
        kinds = tuple(column.kind for column in columns)
        return cls(kinds, tuple(_FIT[column.kind](column.values) for column in columns))

    def transform(self, columns: list[Column]) -> np.ndarray:
        """One row of float32 numbers per row of the table."""
        parts = [np.zeros((len(columns[0].values), 0))]
        for column, kind, code in zip(columns, self.kinds, self.codes, strict=True):
            _check_kind(column, kind)
            parts.append(_ENCODE[kind](column.values, code))
        encoded = np.concatenate(parts, axis=1).astype(np.float32)
        # A network needs an input, even if all columns are constant.
        return encoded if encoded.shape[1] else np.zeros((len(encoded), 1), np.float32)

    def outside(self, columns: list[Column]) -> np.ndarray:
        """How far each row lies outside the data, from 0 to 1, by the column that is farthest."""
        parts = [np.zeros(len(columns[0].values))]
        for column, kind, code in zip(columns, self.kinds, self.codes, strict=True):
            number = code.distance if isinstance(code, TimeCode) else code
            if kind != "category":
                assert isinstance(number, NumberCode)
                parts.append(_how_far_outside(column.values, number))
        return np.max(parts, axis=0).astype(np.float32)

    def to_config(self) -> list[Any]:
        """Plain lists and numbers, for saving."""
        return [[kind, _plain(code)] for kind, code in zip(self.kinds, self.codes, strict=True)]

    @classmethod
    def from_config(cls, config: list[Any]) -> "Encoder":
        """The inverse of `to_config`."""
        kinds = tuple(kind for kind, _ in config)
        return cls(kinds, tuple(_code_from(kind, fields) for kind, fields in config))


def _fit_number(values: np.ndarray) -> NumberCode:
    known = values[np.isfinite(values)]
    has_missing = len(known) < len(values)
    if not len(known) or known.max() == known.min():
        return NumberCode(
            float(known[0]) if len(known) else 0.0, 0.0, has_missing and bool(len(known))
        )
    quantiles = np.quantile(known, (0.05, 0.25, 0.5, 0.75, 0.95))
    low, first, middle, third, high = quantiles.tolist()
    # In units of a normal distribution; wider quantiles where most values are the same.
    for spread in ((third - first) / 1.349, (high - low) / 3.29, _safe_std(known - middle)):
        if spread > 0:
            break
    low, high = _standardize(np.array([known.min(), known.max()]), middle, spread).tolist()
    return NumberCode(middle, spread, has_missing, low, high)


def _safe_std(distance: np.ndarray) -> float:
    """The root mean square, without overflow."""
    size = np.abs(distance).max()
    return float(size * np.sqrt(np.mean((distance / size) ** 2)))


def _encode_number(values: np.ndarray, code: NumberCode) -> np.ndarray:
    is_known = np.isfinite(values)
    columns = []
    if code.scale > 0:
        z = _standardize(np.where(is_known, values, code.shift), code.shift, code.scale)
        bent, low, high = _bend(z), _bend(code.low), _bend(code.high)
        inside = np.clip(bent, low, high)
        margin = _MARGIN * (high - low)
        columns.append(inside + margin * np.tanh((bent - inside) / margin))
    if code.has_missing:
        columns.append(np.where(is_known, 0.0, 1.0))
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def _how_far_outside(values: np.ndarray, code: NumberCode) -> np.ndarray:
    """0 within the range of the data and a margin around it, 1 far outside."""
    if code.scale == 0:
        return np.zeros(len(values))
    z = _standardize(np.where(np.isfinite(values), values, code.shift), code.shift, code.scale)
    margin = _MARGIN * (code.high - code.low)
    return np.tanh(0.5 * np.maximum(0.0, np.maximum(z - code.high, code.low - z) - margin))


def _standardize(values: np.ndarray, shift: float, scale: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.clip((values - shift) / scale, -_LARGEST, _LARGEST)


def _bend(z: Any) -> Any:
    return z / np.sqrt(1 + (z / _BEND) ** 2)


def _fit_category(values: np.ndarray) -> CategoryCode:
    levels, counts = np.unique(values.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MAX_LEVELS]
    if len(levels) < 2:
        return CategoryCode((), ())
    shares = counts[order] / len(values)
    return CategoryCode(tuple(levels[order].tolist()), tuple(shares.tolist()))


def _encode_category(values: np.ndarray, code: CategoryCode) -> np.ndarray:
    values = values.astype(str)
    levels, shares = np.array(code.levels, dtype=str), np.array(code.shares)
    is_level = values[:, None] == levels[None, :]
    # A level without a column, rare or never seen, is the average of all.
    centred = np.where(is_level.any(axis=1, keepdims=True), is_level - shares[None, :], 0.0)
    return centred / np.maximum(np.sqrt(shares * (1 - shares)), 0.2)[None, :]


def _fit_time(seconds: np.ndarray) -> TimeCode:
    known = seconds[np.isfinite(seconds)]
    covered = float(known.max() - known.min()) if len(known) else 0.0
    steps = np.diff(np.unique(known))
    finest = float(steps.min()) if len(steps) else np.inf
    used = [name for name, period in _PERIODS.items() if covered > period > 1.5 * finest]
    return TimeCode(_fit_number(seconds), tuple(used))


def _encode_time(seconds: np.ndarray, code: TimeCode) -> np.ndarray:
    parts = [_encode_number(seconds, code.distance)]
    is_known = np.isfinite(seconds)
    for name in code.periods:
        phase = 2 * np.pi * np.where(is_known, seconds, 0.0) / _PERIODS[name]
        waves = np.stack([np.sin(phase), np.cos(phase)], axis=1)
        parts.append(np.where(is_known[:, None], waves, 0.0))
    return np.concatenate(parts, axis=1)


_FIT: dict[Kind, Any] = {"number": _fit_number, "category": _fit_category, "time": _fit_time}
_ENCODE: dict[Kind, Any] = {
    "number": _encode_number,
    "category": _encode_category,
    "time": _encode_time,
}


def _check_kind(column: Column, kind: Kind) -> None:
    if column.kind != kind:
        raise ValueError(
            f"Column {column.name!r} of `X` was a {kind} in `fit` and is a {column.kind} now. "
            "Convert it before predicting."
        )


def _plain(code: Any) -> Any:
    return [_plain(item) for item in code] if isinstance(code, tuple) else code


def _code_from(kind: Literal["number", "category", "time"], fields: list[Any]) -> Code:
    if kind == "category":
        return CategoryCode(tuple(fields[0]), tuple(fields[1]))
    if kind == "time":
        return TimeCode(NumberCode(*fields[0]), tuple(fields[1]))
    return NumberCode(*fields)
