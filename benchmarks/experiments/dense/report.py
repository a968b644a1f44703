"""The table of the stereo pair from the stored results."""

from typing import Any

import numpy as np

from benchmarks.experiments.dense.jobs import CHOSEN
from benchmarks.machinery.document import Paragraph, Section, Table
from benchmarks.machinery.store import Store

METRICS = {"rmse": 2, "nll": 2, "ece": 3}


def section(store: Store) -> Section | None:
    """The test scores of every method; None without results."""
    cells = [cell for cell in store.cells("dense") if cell["spec"]["method"] in CHOSEN]
    if not cells:
        return None
    words = (
        "Means over the seeds, all of them in brackets. Adam at the learning rate that validation "
        "picks; `fisher8_optimizer` with its defaults. Test blocks alone; NLL in nats per pixel "
        "with its constant."
    )
    return Section("Stereo pair", [_table(cells), Paragraph(words)])


def _table(cells: list[dict[str, Any]]) -> Table:
    rows = []
    for method in CHOSEN:
        mine = [cell["result"] for cell in cells if cell["spec"]["method"] == method]
        if mine:
            rows.append([method, *(_score(mine, name) for name in METRICS)])
    steps = cells[0]["spec"]["steps"]
    header = ["method", "RMSE in pixels", "NLL", "ECE"]
    return Table(f"Disparity of every pixel, {steps} steps", header, rows)


def _score(results: list[dict[str, Any]], name: str) -> str:
    values = [result[name] for result in results]
    texts = [f"{value:.{METRICS[name]}f}" for value in values]
    if len(values) == 1:
        return texts[0]
    return f"{np.mean(values):.{METRICS[name]}f} ({', '.join(texts)})"
