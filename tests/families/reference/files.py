"""The tables as files: JSON objects of columns, one line each."""

import json
import math
import pathlib
from typing import Any, TypeAlias

FOLDER = pathlib.Path(__file__).parent

Table: TypeAlias = dict[str, list[Any]]


def read(name: str) -> Table:
    """The columns of a table; nan where there is no answer."""
    table = json.loads((FOLDER / f"{name}.json").read_text())
    return {key: [math.nan if x is None else x for x in column] for key, column in table.items()}


def write(name: str, table: Table) -> None:
    """Parameters and answers with nine digits, all of float32, spreads with three; null for nan."""
    lines = [f"{json.dumps(key)}: {json.dumps(_rounded(key, x))}" for key, x in table.items()]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _rounded(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(key, item) for item in value]
    if math.isnan(value):
        return None
    return float(f"{value:.{3 if key.startswith('spread') else 9}g}")
