"""CSV files as data frames with columns of the kinds that the estimator knows."""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fisher8_jax.command._csv import CommandError, Dialect, counted, read_csv
from fisher8_jax.estimator import Fisher8Regressor

# How pandas writes booleans; as numbers they may be missing.
_BOOLEANS = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


class TrainingRows(NamedTuple):
    """The rows of a file that have a target.

    Attributes:
        inputs: the columns to predict from.
        targets: numbers.
        dropped: how many rows of the file have no target.
        groups: whose rows stay in one fold, if asked for.
        times: by which the folds are ordered, if asked for.
    """

    inputs: pd.DataFrame
    targets: np.ndarray
    dropped: int
    groups: pd.Series | None = None
    times: pd.Series | None = None


def read_table(path: Path, dialect: Dialect | None = None) -> pd.DataFrame:
    """The file as text and numbers; columns in which all is a date become times."""
    return read_csv(path, dialect).apply(_as_times)


def split_target(frame: pd.DataFrame, arguments: argparse.Namespace) -> TrainingRows:
    """The inputs and the target, whose missing values are left out."""
    target, group, time = arguments.target, arguments.group, arguments.time
    unused = [*arguments.ignore, *arguments.id]
    check_columns(frame, [name for name in (target, group, time, *unused) if name])
    _check_target(frame, target)
    is_known = frame[target].notna()
    if is_known.sum() < 10:
        raise CommandError(f"{is_known.sum()} rows have a {target!r}; at least 10 are needed.")
    kept = frame.loc[is_known].reset_index(drop=True)
    inputs = kept.drop(columns=list({target, *unused, *([group] if group else [])}))
    if not len(inputs.columns):
        raise CommandError(f"No column is left to predict {target!r} from.")
    return TrainingRows(
        inputs,
        kept[target].to_numpy(dtype=float),
        dropped=int((~is_known).sum()),
        groups=None if group is None else _complete(kept[group], "--group"),
        times=None if time is None else _ordered(_complete(kept[time], "--time")),
    )


def columns_of_model(
    frame: pd.DataFrame, model: Fisher8Regressor, *, decimal: str = "."
) -> pd.DataFrame:
    """The columns that the model was fitted to, in its order and of its kinds.

    Args:
        frame: columns of text.
        model: a fitted model.
        decimal: the decimal point of numbers.
    """
    names = [str(name) for name in model.feature_names_in_]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise CommandError(
            f"The data lack {len(missing)} of the model's {len(names)} columns: "
            f"{', '.join(map(repr, missing))}. They have {', '.join(map(repr, frame.columns))}."
        )
    kinds = zip(names, model.encoder_.kinds, strict=True)
    return pd.DataFrame({name: _as_kind(frame[name], kind, decimal) for name, kind in kinds})


def check_columns(frame: pd.DataFrame, names: list[str]) -> None:
    """Names the first column that is not there."""
    for name in names:
        if name not in frame.columns:
            raise CommandError(
                f"There is no column {name!r}. There are {', '.join(map(repr, frame.columns))}."
            )


def _check_target(frame: pd.DataFrame, target: str) -> None:
    column = frame[target]
    if pd.api.types.is_numeric_dtype(column):
        return
    example = column.dropna().astype(str)
    shown = f", for instance {example.iloc[0]!r}" if len(example) else ""
    raise CommandError(
        f"The target {target!r} must be a column of numbers, but holds something else{shown}. "
        "Classes are not predicted; numbers must be written without units, and with `--decimal ,` "
        "if they have commas."
    )


def _complete(column: pd.Series, option: str) -> pd.Series:
    if column.isna().any():
        raise CommandError(
            f"`{option}` {column.name!r} is missing in {counted(column.isna().sum(), 'row')}. Fill "
            "it or remove them."
        )
    return column


def _ordered(column: pd.Series) -> pd.Series:
    types = pd.api.types
    if not (types.is_numeric_dtype(column) or types.is_datetime64_any_dtype(column)):
        raise CommandError(
            f"`--time` {column.name!r} holds {column.iloc[0]!r}. Write dates in ISO form, such as "
            "2024-12-31, or numbers."
        )
    return column


def _as_times(column: pd.Series) -> pd.Series:
    known = column.dropna()
    if pd.api.types.is_numeric_dtype(column.dtype) or not len(known):
        return column
    times = pd.to_datetime(known.astype(str), errors="coerce", format="ISO8601", utc=True)
    return times.reindex(column.index) if times.notna().all() else column


def _as_kind(column: pd.Series, kind: str, decimal: str) -> pd.Series:
    """The text of a column as the kind that it was in the training."""
    if kind in ("category", "text"):
        return column.astype(object).where(column.notna(), None)
    if kind == "time":
        found = pd.to_datetime(column.astype(object), errors="coerce", format="ISO8601", utc=True)
    else:
        words = column.map(lambda word: _BOOLEANS.get(word, word.replace(decimal, ".")), "ignore")
        found = pd.to_numeric(words, errors="coerce").astype(float)
    wrong = found.isna() & column.notna()
    if wrong.any():
        raise CommandError(
            f"Column {column.name!r} held {kind}s in the training, but row "
            f"{int(wrong.argmax()) + 1} has {column[wrong].iloc[0]!r}."
        )
    return found
