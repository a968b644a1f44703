"""CSV files as data frames with columns of the kinds that the estimator knows."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fisher8_jax.command._errors import CommandError
from fisher8_jax.estimator import Fisher8Regressor

# How pandas writes booleans; as numbers they may be missing.
_BOOLEANS = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


def read_table(path: Path) -> pd.DataFrame:
    """The file as text and numbers; columns in which all is a date become times."""
    try:
        frame = pd.read_csv(path)
    except FileNotFoundError:
        raise CommandError(f"There is no file {str(path)!r}.") from None
    except (OSError, ValueError) as error:  # pandas' own errors are kinds of ValueError
        raise CommandError(f"{str(path)!r} cannot be read as CSV: {error}") from error
    if frame.empty:
        raise CommandError(f"{str(path)!r} has no rows below its header.")
    return frame.apply(_as_times)


def split_target(
    frame: pd.DataFrame, target: str, ignored: Sequence[str]
) -> tuple[pd.DataFrame, pd.Series]:
    """The inputs and the target, whose missing values are left out."""
    for name in (target, *ignored):
        _check_column(frame, name)
    if not pd.api.types.is_numeric_dtype(frame[target]):
        example = frame[target].dropna().astype(str)
        shown = f", for instance {example.iloc[0]!r}" if len(example) else ""
        raise CommandError(
            f"The target {target!r} must be a column of numbers, but holds {frame[target].dtype}"
            f"{shown}. Classes are not predicted; numbers must be written without units."
        )
    is_known = frame[target].notna()
    if is_known.sum() < 10:
        raise CommandError(f"{is_known.sum()} rows have a {target!r}; at least 10 are needed.")
    inputs = frame.loc[is_known].drop(columns=[target, *ignored])
    if not len(inputs.columns):
        raise CommandError(f"No column is left to predict {target!r} from.")
    return inputs.reset_index(drop=True), frame.loc[is_known, target].astype(float)


def columns_of_model(frame: pd.DataFrame, model: Fisher8Regressor) -> pd.DataFrame:
    """The columns that the model was fitted to, in its order and of its kinds."""
    names = [str(name) for name in model.feature_names_in_]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise CommandError(
            f"The data lack {len(missing)} of the model's {len(names)} columns: "
            f"{', '.join(map(repr, missing))}. They have {', '.join(map(repr, frame.columns))}."
        )
    kinds = zip(names, model.encoder_.kinds, strict=True)
    return pd.DataFrame({name: _as_kind(frame[name], kind) for name, kind in kinds})


def _as_times(column: pd.Series) -> pd.Series:
    known = column.dropna()
    if pd.api.types.is_numeric_dtype(column.dtype) or not len(known):
        return column
    times = pd.to_datetime(known.astype(str), errors="coerce", format="ISO8601", utc=True)
    return times.reindex(column.index) if times.notna().all() else column


def _as_kind(column: pd.Series, kind: str) -> pd.Series:
    """A file of few rows may look like another kind than the data of the training."""
    if kind == "category":
        return column.astype(object).where(column.notna(), None)
    if kind == "time":
        found = pd.to_datetime(column.astype(object), errors="coerce", format="ISO8601", utc=True)
    else:
        found = pd.to_numeric(column.replace(_BOOLEANS), errors="coerce").astype(float)
    wrong = found.isna() & column.notna()
    if wrong.any():
        raise CommandError(
            f"Column {column.name!r} held {kind}s in the training, but row {int(wrong.argmax())} "
            f"has {column[wrong].iloc[0]!r}."
        )
    return found


def _check_column(frame: pd.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise CommandError(
            f"There is no column {name!r}. There are {', '.join(map(repr, frame.columns))}."
        )
