"""The forms of damping as tables: every way with the one damping that suits the four sets best.

Beside them what the average of the parameters does for the preset's own damping.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.experiments.curvature.plan import DAMPING, SELECTION
from benchmarks.machinery.document import Block, Paragraph, Table
from benchmarks.machinery.store import Store

Row = dict[str, Any]


def blocks(store: Store) -> list[Block]:
    """One table for each network."""
    found: list[Block] = []
    averages: list[list[str]] = []
    for cell in store.cells("damping"):
        if cell["spec"].get("experiment") == "scales":
            found.append(_table(cell["spec"]["network"], cell["result"]))
            averages += average_rows(cell["spec"]["network"], cell["result"]["rows"])
    if not found:
        return []
    caption = "Held-out NLL of the last and of the averaged parameters, identity, damping 0.3"
    header = ["network", "budget", "parameters", *SELECTION]
    return [*found, Paragraph(WORDS), Table(caption, header, averages)]


def average_rows(network: str, rows: Iterable[Row]) -> list[list[str]]:
    """The preset with its default damping: its last parameters and their average."""
    chosen = [
        row
        for row in rows
        if (row["form"], row["momentum"], row["damping"]) == ("identity", 0.0, DAMPING)
    ]
    return [
        [network, row["budget"], label, *(f"{_number(row[key][one]):.3f}" for one in SELECTION)]
        for row in chosen
        for label, key in (("last", "nll_of_last"), ("average", "nll"))
    ]


WORDS = (
    "Mean over splits of the NLL of held-out training rows, averaged parameters, equal processor "
    "time for all rows of a budget. Each way is shown with the one damping, of four, that has the "
    "smallest mean over the sets; the best of a budget is in bold."
)


def best_rows(rows: Iterable[Row]) -> list[Row]:
    """Of every budget, form and momentum the damping with the smallest mean NLL over the sets."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        way = row["budget"], row["form"], row["momentum"]
        if way not in best or _mean(row) < _mean(best[way]):
            best[way] = row
    return list(best.values())


def _mean(row: Row) -> float:
    return float(np.mean([_number(value) for value in row["nll"].values()]))


def _number(value: float | None) -> float:
    return np.inf if value is None else value


def _table(network: str, result: dict[str, Any]) -> Table:
    shown = best_rows(result["rows"])
    sets = list(shown[0]["nll"])
    lines = []
    for row in shown:
        seconds = result["seconds_per_step"][f"{row['form']}-{row['momentum']}"]
        numbers = [f"{row['damping']:g}", f"{1e6 * seconds:.0f}", str(row["steps"])]
        beside = [other for other in shown if other["budget"] == row["budget"]]
        values = [_figure(row, one, beside) for one in sets]
        way = [row["budget"], row["form"], f"{row['momentum']:g}"]
        lines.append([*way, *numbers, *values, f"{_mean(row):.3f}"])
    header = ["budget", "scale", "momentum", "damping", "us a step", "steps", *sets, "mean"]
    caption = f"Damping by the identity and by factored second moments, {network}"
    return Table(caption, header, lines)


def _figure(row: Row, name: str, beside: list[Row]) -> str:
    """The NLL of one set, marked if none beside it is smaller."""
    value = _number(row["nll"][name])
    text = f"{value:.3f}" if np.isfinite(value) else "diverged"
    return f"**{text}**" if value <= min(_number(r["nll"][name]) for r in beside) else text
