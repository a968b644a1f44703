"""Files of the command: CSV that is checked before it is read, outputs that overwrite no input."""

import argparse
import bz2
import collections
import csv
import gzip
import io
import lzma
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pandas as pd

from fisher8_jax._internal.files import replacing


class CommandError(Exception):
    """Something that the user of a command can correct; the message says how."""


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def check_outputs(inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Refuses, before hours of training, to overwrite an input or one output by another.

    Args:
        inputs: files to read by the option that names them; None where it was not given.
        outputs: files to write.
    """
    taken = {option: path for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise CommandError(f"`{option}` {str(path)!r} is a folder. Name a file in it.")
        for other, used in taken.items():
            if _is_same(path, used):
                raise CommandError(
                    f"`{option}` and {other} are the same file, {str(path)!r}. It would be "
                    "overwritten: choose another name."
                )
        taken[f"`{option}`"] = path


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file in one step."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error}") from error


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist yet
        return one.resolve() == other.resolve()


_OPEN: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class Dialect(NamedTuple):
    """How the fields of a file are written."""

    separator: str = ","
    decimal: str = "."

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """The dialect that the options describe; a tab may be written as backslash and t."""
        separator = arguments.separator.replace("\\t", "\t")
        for option, value in (("--separator", separator), ("--decimal", arguments.decimal)):
            if len(value) != 1:
                raise CommandError(f"`{option}` must be one character, got {value!r}.")
        if separator == arguments.decimal:
            raise CommandError("`--separator` and `--decimal` must differ.")
        return cls(separator, arguments.decimal)


def read_csv(path: Path, dialect: Dialect | None = None, *, as_text: bool = False) -> pd.DataFrame:
    """The named columns of a file with a header.

    Args:
        path: the file, perhaps compressed.
        dialect: its separator and decimal point.
        as_text: True leaves every field as it is written; empty ones are missing anyway.
    """
    dialect = dialect or Dialect()
    try:
        text = _read_text(path)
        header = _check_header(path, text, dialect)
        text = _check_rows(path, text, len(header), dialect)
        frame = pd.read_csv(
            io.StringIO(text),
            sep=dialect.separator,
            decimal=dialect.decimal,
            index_col=False,
            dtype=str if as_text else None,
        )
    except FileNotFoundError:
        raise CommandError(f"There is no file {str(path)!r}.") from None
    except (OSError, EOFError, csv.Error, ValueError) as error:  # pandas' own are ValueErrors
        raise CommandError(f"{str(path)!r} cannot be read as CSV: {error}") from error
    if frame.empty:
        raise CommandError(f"{str(path)!r} has no rows below its header.")
    named = [place for place, name in enumerate(header) if name]
    if len(named) < len(header):
        nameless = counted(len(header) - len(named), "column")
        _note(f"{nameless} of {path.name} without a name left out.")
    frame = frame.iloc[:, named]
    frame.columns = [header[place] for place in named]
    return frame


def _read_text(path: Path) -> str:
    opener = _OPEN.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        return file.read()


def _records(text: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Lines of the file and their fields, without blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator)
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _check_header(path: Path, text: str, dialect: Dialect) -> list[str]:
    _, header = next(_records(text, dialect), (0, []))
    if not any(header):
        raise CommandError(f"{str(path)!r} cannot be read as CSV: it is empty.")
    if len(header) == 1:
        for separator, words in (
            (";", "semicolons"),
            ("\t", "tabs"),
            ("|", "bars"),
            (",", "commas"),
        ):
            if separator in header[0]:
                raise CommandError(
                    f"The header of {str(path)!r} is one column, {header[0]!r}. If {words} "
                    f"separate the columns, add `--separator {separator!r}`."
                )
    doubles = [name for name, n in collections.Counter(filter(None, header)).items() if n > 1]
    if doubles:
        raise CommandError(
            f"The header of {str(path)!r} has {', '.join(map(repr, doubles))} more than once. "
            "Rename or remove the others, so that it is clear which one is meant."
        )
    return header


def _check_rows(path: Path, text: str, width: int, dialect: Dialect) -> str:
    """The text without separators at the ends of rows; rows that are too long are refused."""
    short = trailing = 0
    for line, fields in _records(text, dialect):
        short += len(fields) < width
        trailing += len(fields) > width
        if any(fields[width:]):
            raise CommandError(
                f"Line {line} of {str(path)!r} has {len(fields)} fields, the header has {width}. "
                "If the first field is a row name, give it a name in the header or leave it out; a "
                "field that contains the separator must be quoted."
            )
    if short:
        rows = counted(short, "row")
        _note(f"{rows} of {path.name} with too few fields; the last columns count as missing.")
    if not trailing:
        return text
    trimmed = io.StringIO()
    kept = (fields[:width] for _, fields in _records(text, dialect))
    csv.writer(trimmed, delimiter=dialect.separator).writerows(kept)
    return trimmed.getvalue()


def _note(words: str) -> None:
    print(f"Note: {words}", file=sys.stderr)
