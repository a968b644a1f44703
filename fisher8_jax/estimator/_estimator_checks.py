"""Argument checks of the estimator, with the wording of its errors."""

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from jax.typing import ArrayLike
from sklearn.utils import check_array

from fisher8_jax._internal.checks import check_count, check_number, check_unmasked
from fisher8_jax._internal.trees import append_axes

Value = TypeVar("Value")


def check_setting(
    name: str, value: float, *, above: float | None = None, below: float | None = None
) -> float:
    """A number within its bounds as a float."""
    check_number(name, value, above=above, below=below)
    return float(value)


def check_flag(name: str, value: bool) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False, got {value!r}.")
    return bool(value)


def check_hidden(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """The widths of the hidden layers as a tuple."""
    if isinstance(hidden, str):
        raise ValueError(
            f"`hidden_layer_sizes` must be an integer or a sequence of integers such as (50, 50), "
            f"got the string {hidden!r}."
        )
    widths = (hidden,) if isinstance(hidden, int | np.integer) else hidden
    try:
        return tuple(check_count("hidden_layer_sizes", width) for width in widths)
    except TypeError:
        raise ValueError(
            f"`hidden_layer_sizes` must be an integer or a sequence of integers, got {hidden!r}."
        ) from None


def from_rows_on(table: Mapping[int, Value], rows: int) -> Value:
    """What a table holds for so many rows, each entry from its own number of rows on."""
    return table[max(least for least in table if least <= rows)]


def check_some_targets(is_present: np.ndarray) -> None:
    """Rejects targets of which a column is missing altogether, or all rows but one."""
    present = is_present.reshape(len(is_present), -1).sum(axis=0)
    if np.any(present == 0):
        column = int(np.argmin(present))
        raise ValueError(
            f"Column {column} of `y` has no target with a positive weight: all are nan or have a "
            "sample weight of 0. Leave the column out."
        )
    rows = is_present.reshape(len(is_present), -1).any(axis=1).sum()
    if rows < 2:
        raise ValueError(
            f"At least 2 rows must have a target and a positive weight, because some are held out; "
            f"got {rows} of {len(is_present)} rows."
        )


def check_targets(y: ArrayLike) -> np.ndarray:
    """Targets in float64, nan where missing."""
    check_unmasked("y", y)
    _check_not_times(y)
    with numbers_expected("y", "Classes are not predicted."):
        return check_array(
            y, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y"
        )


@contextlib.contextmanager
def numbers_expected(name: str, hint: str) -> Iterator[None]:
    """Says which argument held words when NumPy could not read them as numbers."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        said = re.sub(r"np\.str_\((.*)\)", r"\1", str(error))
        raise ValueError(f"`{name}` must hold numbers: {said}. {hint}") from None


def _check_not_times(y: ArrayLike) -> None:
    """Refuses dates and durations, which NumPy would turn into counts of nanoseconds."""
    values = np.asarray(y)
    is_time = values.dtype.kind in "mM" or (
        values.dtype == object
        and any(isinstance(v, datetime.date | datetime.timedelta) for v in values.flat)
    )
    if is_time:
        raise TypeError(
            "`y` holds dates or durations. Predict a number instead, for instance the days since "
            "a date: `(y - y.min()) / np.timedelta64(1, 'D')`."
        )


def as_targets(weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Row weights with as many axes as the targets."""
    return append_axes(weights, targets.ndim)
