"""Data frames of any package as columns of numbers, times, categories and strings.

narwhals reads pandas, polars, pyarrow, modin and cuDF through one interface and imports none of
them.
"""

import datetime
import decimal
import numbers
from typing import Any, Literal, NamedTuple, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

DType = Literal["number", "time", "category", "string"]

# A matrix of numbers, or a data frame of a package that is not imported here.
Table: TypeAlias = Any

# A name that no level of a category has: missing is a level of its own.
MISSING = "\0missing"


class TableColumn(NamedTuple):
    """One column as it was stored.

    Attributes:
        name: for error messages.
        dtype: what it holds; "category" if the frame says so, "string" for other words.
        values: float64 with nan where missing (times in seconds), or strings with `MISSING`.
    """

    name: str
    dtype: DType
    values: np.ndarray

    @property
    def is_missing(self) -> np.ndarray:
        """Which rows have no value."""
        return self.values == MISSING if self.values.dtype == object else np.isnan(self.values)


def is_frame(table: Table) -> bool:
    """Whether `table` is a data frame; a lazy one is refused."""
    try:
        found = nw.from_native(table, pass_through=True)
    except DuplicateError as error:
        raise ValueError(f"`X` has columns of the same name. Rename them. ({error})") from None
    if isinstance(found, nw.LazyFrame):
        raise TypeError("`X` is a lazy frame. Pass `X.collect()`.")
    return isinstance(found, nw.DataFrame)


def columns_of_frame(frame: Table) -> list[TableColumn]:
    """The columns of a data frame, at least one."""
    columns = [_read(series) for series in nw.from_native(frame, eager_only=True).iter_columns()]
    if not columns:
        raise ValueError("`X` has no columns. Give at least one to predict from.")
    return columns


def columns_of_array(array: np.ndarray) -> list[TableColumn]:
    """The columns of a matrix of numbers."""
    return [TableColumn(f"x{index}", "number", column) for index, column in enumerate(array.T)]


def _read(series: Any) -> TableColumn:
    name, dtype = str(series.name), series.dtype
    if dtype == nw.Boolean or dtype.is_numeric():
        return _number(name, series.cast(nw.Float64).to_numpy())
    if dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    if dtype in (nw.Date, nw.Datetime):
        return TableColumn(name, "time", _seconds(series.dt.timestamp("us")))
    if dtype == nw.Duration:
        return TableColumn(name, "number", _seconds(series.dt.total_microseconds()))
    is_missing = series.is_null().to_numpy().astype(bool)
    if dtype in (nw.Categorical, nw.Enum):
        return TableColumn(name, "category", _words(series.to_list(), is_missing))
    return _objects(name, series.to_list(), is_missing)


def _number(name: str, values: np.ndarray) -> TableColumn:
    values = np.asarray(values, np.float64)
    if np.isinf(values).any():
        raise ValueError(
            f"Column {name!r} of `X` contains infinity. Replace it by a finite number or by nan, "
            "which counts as missing."
        )
    return TableColumn(name, "number", values)


def _seconds(microseconds: Any) -> np.ndarray:
    return microseconds.cast(nw.Float64).to_numpy() / 1e6


def _objects(name: str, values: list[Any], is_missing: np.ndarray) -> TableColumn:
    """Python objects: numbers and times stay what they are, anything else is its text."""
    known = [value for value, missing in zip(values, is_missing, strict=True) if not missing]
    for types, read in _READERS.items():
        if known and all(isinstance(value, types) for value in known):
            column = np.full(len(values), np.nan)
            column[~is_missing] = [read(value) for value in known]
            return _number(name, column) if read is float else TableColumn(name, "time", column)
    return TableColumn(name, "string", _words(values, is_missing))


def _words(values: list[Any], is_missing: np.ndarray) -> np.ndarray:
    words = np.empty(len(values), dtype=object)
    words[:] = [str(value) for value in values]
    return np.where(is_missing, MISSING, words)


def timestamp(moment: datetime.date) -> float:
    """Seconds since 1970; a time without a zone counts as UTC."""
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime.combine(moment, datetime.time())
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


_READERS: dict[Any, Any] = {
    (numbers.Real, decimal.Decimal, np.bool_): float,
    (datetime.date,): timestamp,
}
