"""Columns of a table as a network wants them: bounded numbers of about unit size, none missing.

Each column has a *kind*, found by `Encoder.fit`: a number, a time, a category or text. Strings are
times if all are ISO dates, numbers if all are numbers and the levels are too many for a category.
A missing number becomes 0 with a column of its own that flags it, whose weights the network learns.
"""

import dataclasses
from typing import Any, Literal

import numpy as np

from fisher8_jax.estimator._frames import MISSING, TableColumn
from fisher8_jax.estimator._pieces import PieceCode
from fisher8_jax.estimator._strings import (
    CategoryCode,
    TextCode,
    is_few,
    parse_numbers,
    parse_times,
)
from fisher8_jax.estimator._times import TimeCode

Kind = Literal["number", "time", "category", "text"]
Code = PieceCode | TimeCode | CategoryCode | TextCode

_CODES: dict[Kind, type[Code]] = {
    "number": PieceCode,
    "time": TimeCode,
    "category": CategoryCode,
    "text": TextCode,
}
_PARSERS: dict[Kind, Any] = {"number": parse_numbers, "time": parse_times}


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Encodes tables with the columns that it was fitted to."""

    kinds: tuple[Kind, ...]
    codes: tuple[Code, ...]

    @classmethod
    def fit(cls, columns: list[TableColumn]) -> "Encoder":
        """Learns kinds, centres, scales and levels."""
        kinds = tuple(map(_find_kind, columns))
        numbers = kinds.count("number")

        def code(column: TableColumn, kind: Kind) -> Code:
            values = _as_kind(column, kind)
            return PieceCode.fit(values, numbers) if kind == "number" else _CODES[kind].fit(values)

        return cls(kinds, tuple(map(code, columns, kinds)))

    def transform(self, columns: list[TableColumn]) -> np.ndarray:
        """One row of float32 numbers per row of the table."""
        parts = [np.zeros((len(columns[0].values), 0))]
        for column, kind, code in zip(columns, self.kinds, self.codes, strict=True):
            parts.append(code.encode(_as_kind(column, kind)))
        encoded = np.concatenate(parts, axis=1).astype(np.float32)
        # A network needs an input, even if all columns are constant.
        return encoded if encoded.shape[1] else np.zeros((len(encoded), 1), np.float32)

    def is_bin(self) -> np.ndarray:
        """Which of the encoded columns are bins of a number."""
        parts = []
        for column, kind, code in zip(self.example(), self.kinds, self.codes, strict=True):
            width = code.encode(_as_kind(column, kind)).shape[1]
            bins = len(code.centres) if isinstance(code, PieceCode) else 0
            parts.append(np.arange(width) >= width - bins)
        found = np.concatenate(parts)
        return found if len(found) else np.zeros(1, bool)

    def outside(self, columns: list[TableColumn]) -> np.ndarray:
        """How far each row lies outside the data, from 0 to 1, by the column that is farthest."""
        parts = [np.zeros(len(columns[0].values))]
        for column, kind, code in zip(columns, self.kinds, self.codes, strict=True):
            parts.append(code.outside(_as_kind(column, kind)))
        return np.max(parts, axis=0).astype(np.float32)

    def example(self) -> list[TableColumn]:
        """One row of zeros and empty words, for checks of an encoder from a file."""
        number, word = np.zeros(1), np.array([""], dtype=object)
        return [
            TableColumn(str(index), kind, number)
            if kind in ("number", "time")
            else TableColumn(str(index), "string", word)
            for index, kind in enumerate(self.kinds)
        ]

    def to_config(self) -> list[Any]:
        """Plain lists and numbers, for saving."""
        return [[kind, _plain(code)] for kind, code in zip(self.kinds, self.codes, strict=True)]

    @classmethod
    def from_config(cls, config: list[Any]) -> "Encoder":
        """The inverse of `to_config`."""
        kinds = tuple(kind for kind, _ in config)
        return cls(kinds, tuple(_CODES[kind].from_config(fields) for kind, fields in config))


def _find_kind(column: TableColumn) -> Kind:
    if column.dtype in ("number", "time"):
        return column.dtype
    few = is_few(column.values)
    if column.dtype == "string" and not column.is_missing.all():
        if _can_be(column, "time"):
            return "time"
        # A dozen numbers in quotes are more likely names of groups.
        if not few and _can_be(column, "number"):
            return "number"
    return "category" if few else "text"


def _can_be(column: TableColumn, kind: Kind) -> bool:
    try:
        return bool(np.isfinite(_PARSERS[kind](column.values)).any())
    except ValueError:
        return False


def _as_kind(column: TableColumn, kind: Kind) -> np.ndarray:
    """The values of a column as the kind that it had in `fit`."""
    has_words = kind in ("category", "text")
    if column.is_missing.all():  # and then the frame does not know what it would hold
        return np.full(len(column.values), MISSING if has_words else np.nan)
    if column.dtype == kind or (has_words and column.dtype in ("category", "string")):
        return column.values
    if column.dtype == "string":
        try:
            return _PARSERS[kind](column.values)
        except ValueError as error:
            raise ValueError(
                f"Column {column.name!r} of `X` held {kind}s in `fit` and has {error} now. Correct "
                "it or replace it by None, which counts as missing."
            ) from None
    raise ValueError(
        f"Column {column.name!r} of `X` was a {kind} in `fit` and is a {column.dtype} now. "
        "Convert it before predicting."
    )


def _plain(code: Any) -> Any:
    return [_plain(item) for item in code] if isinstance(code, tuple) else code
