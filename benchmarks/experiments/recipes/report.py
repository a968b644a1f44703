"""The recipes' section of the report: held-out NLL with and without the one new line."""

from typing import Any

import numpy as np

from benchmarks.machinery.document import Paragraph, Section, Table
from benchmarks.machinery.store import Store

RECIPES = {
    "pets_ensemble": "probabilistic ensemble",
    "behaviour_cloning": "behaviour cloning",
    "neural_process": "neural process",
}


def section(store: Store) -> Section | None:
    """The stored programs; None if there are none."""
    found = table(store)
    if found is None:
        return None
    words = (
        "Three programs of `examples/` as they are, trained by Adam without and with their one new "
        "line."
    )
    return Section("One new line in other code", [Paragraph(words), found])


def table(store: Store) -> Table | None:
    """A row per program and way, the learning rates side by side; the best of a program in bold."""
    rows, rates = [], []
    for name, label in RECIPES.items():
        cell = next((c for c in store.cells("recipes") if c["spec"]["recipe"] == name), None)
        if cell is None:
            continue
        rates = cell["spec"]["rates"]
        means = {key: [_mean(v) for v in cell["result"][key]] for key in ("plain", "corrected")}
        best = min(min(values) for values in means.values())
        for key, words in (("plain", "plain NLL"), ("corrected", "with `fisher8`")):
            texts = [_text(v, best) for v in cell["result"][key]]
            rows.append([label, words, *texts])
    if not rows:
        return None
    header = ["program", "loss", *(f"rate {rate:g}" for rate in rates)]
    return Table("Held-out NLL, mean over seeds (smallest to largest)", header, rows)


def _mean(values: list[Any]) -> float:
    return float(np.mean([np.inf if value is None else value for value in values]))


def _text(values: list[Any], best: float) -> str:
    if any(value is None for value in values):
        return "diverged"
    text = f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
    return f"**{text}**" if _mean(values) == best else text
