"""Tables of any kind as columns of three kinds: numbers, categories, times.

pandas and polars are never imported: a frame can only come from a program that has done so.
"""

import sys
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

Kind = Literal["number", "category", "time"]

# A matrix of numbers, or a data frame of a package that is not imported here.
Table: TypeAlias = Any

# A name that no level of a category has: missing is a level of its own.
MISSING = "\0missing"


class Column(NamedTuple):
    """One column.

    Attributes:
        name: for error messages.
        kind: what it holds.
        values: float64 with nan where missing (times in seconds), or strings with `MISSING`.
    """

    name: str
    kind: Kind
    values: np.ndarray


def is_frame(table: Table) -> bool:
    """Whether `table` is a data frame of pandas or polars."""
    return _is_from("pandas", table) or _is_from("polars", table)


def columns_of_frame(frame: Table) -> list[Column]:
    """The columns of a data frame."""
    read = _read_polars if _is_from("polars", frame) else _read_pandas
    return [read(str(name), frame[name]) for name in frame.columns]


def columns_of_array(array: np.ndarray) -> list[Column]:
    """The columns of a matrix of numbers."""
    return [Column(f"x{index}", "number", array[:, index]) for index in range(array.shape[1])]


def _is_from(package: str, table: Table) -> bool:
    module = sys.modules.get(package)
    return module is not None and isinstance(table, module.DataFrame)


def _read_pandas(name: str, series: Any) -> Column:
    types = sys.modules["pandas"].api.types
    if types.is_bool_dtype(series.dtype) or types.is_numeric_dtype(series.dtype):
        return _number(name, series.to_numpy(dtype=np.float64, na_value=np.nan))
    is_missing = series.isna().to_numpy(dtype=bool)
    if types.is_datetime64_any_dtype(series.dtype):
        if series.dt.tz is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return _time(name, series.to_numpy(dtype="datetime64[ns]"), is_missing)
    if types.is_timedelta64_dtype(series.dtype):
        return _duration(name, series.to_numpy(dtype="timedelta64[ns]"), is_missing)
    return _objects(name, series.astype(object).to_numpy(), is_missing)


def _read_polars(name: str, series: Any) -> Column:
    polars = sys.modules["polars"]
    dtype = series.dtype
    if dtype == polars.Boolean or dtype.is_numeric():
        return _number(name, series.cast(polars.Float64).fill_null(float("nan")).to_numpy())
    is_missing = series.is_null().to_numpy()
    if dtype in (polars.Date, polars.Datetime):
        stamps = series.cast(polars.Datetime("us")).to_physical().fill_null(0).to_numpy()
        return _time(name, stamps.astype("datetime64[us]"), is_missing)
    if dtype == polars.Duration:
        lengths = series.cast(polars.Duration("us")).to_physical().fill_null(0).to_numpy()
        return _duration(name, lengths.astype("timedelta64[us]"), is_missing)
    return _objects(name, np.array(series.to_list(), dtype=object), is_missing)


def _number(name: str, values: np.ndarray) -> Column:
    if np.isinf(values).any():
        raise ValueError(
            f"Column {name!r} of `X` contains infinity. Replace it by a finite number or by nan, "
            "which counts as missing."
        )
    return Column(name, "number", np.asarray(values, np.float64))


def _time(name: str, stamps: np.ndarray, is_missing: np.ndarray) -> Column:
    seconds = stamps.astype("datetime64[us]").astype(np.int64) / 1e6
    return Column(name, "time", np.where(is_missing, np.nan, seconds))


def _duration(name: str, lengths: np.ndarray, is_missing: np.ndarray) -> Column:
    seconds = lengths.astype("timedelta64[us]").astype(np.int64) / 1e6
    return Column(name, "number", np.where(is_missing, np.nan, seconds))


def _objects(name: str, values: np.ndarray, is_missing: np.ndarray) -> Column:
    """Numbers in a column of objects stay numbers; anything else is a category by its text."""
    known = values[~is_missing]
    if len(known) and all(isinstance(value, int | float | np.number) for value in known):
        filled = np.where(is_missing, np.nan, values)
        return _number(name, filled.astype(np.float64))
    text = np.array([str(value) for value in values], dtype=object)
    return Column(name, "category", np.where(is_missing, MISSING, text))
