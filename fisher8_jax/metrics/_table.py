"""Plain aligned text from named arrays; knows no metric."""

import itertools
from collections.abc import Sequence

import chex
import numpy as np

from fisher8_jax._internal.text import aligned

_MOST_COLUMNS = 8

Row = tuple[str, chex.Array, chex.Array | None, chex.Array | None]


def format_table(rows: Sequence[Row], names: Sequence[str] | None, note: str | None) -> str:
    """Rows of (label, values, lower, upper), one column per element of the values."""
    cells, more = table_cells(rows, names, note)
    lines = [line for line in aligned(cells) if line]
    if more:
        lines.append(f"... and {more} more columns")
    return "\n".join(lines)


def table_cells(
    rows: Sequence[Row], names: Sequence[str] | None, note: str | None
) -> tuple[list[list[str]], int]:
    """The cells, headings first, and how many columns are left out because they are too many."""
    shape = np.shape(rows[0][1])
    headings = _headings(shape, names)
    shown = headings[:_MOST_COLUMNS]
    cells = [[note or "", *shown]]
    for label, *arrays in rows:
        columns = [None if a is None else np.asarray(a).reshape(-1) for a in arrays]
        cells.append([label, *(_cell(columns, position) for position in range(len(shown)))])
    return cells, len(headings) - len(shown)


def _headings(shape: tuple[int, ...], names: Sequence[str] | None) -> list[str]:
    size = int(np.prod(shape))
    if names is None:
        if shape == ():
            return [""]
        positions = itertools.product(*(range(n) for n in shape))
        return ["[" + ", ".join(map(str, position)) + "]" for position in positions]
    if isinstance(names, str) or len(names) != size:
        raise ValueError(
            f"`target_names` must be a sequence of {size} names, one per column, got {names!r}."
        )
    return [str(name) for name in names]


def _cell(columns: Sequence[np.ndarray | None], position: int) -> str:
    values, lower, upper = columns
    assert values is not None
    text = _number(values[position])
    if lower is None or upper is None:
        return text
    return f"{text} [{_number(lower[position])}, {_number(upper[position])}]"


def _number(value: np.generic) -> str:
    return str(value) if isinstance(value, np.integer) else f"{float(value):.4g}"
