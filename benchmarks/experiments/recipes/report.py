"""The recipes' section of the report: held-out NLL with and without the one new line."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machinery.document import Paragraph, Section, Table
from benchmarks.machinery.store import Store


class Recipe(NamedTuple):
    """A program of `examples/`, its label, options for its `main`, and the ways it is trained."""

    program: str
    label: str
    options: Mapping[str, float] = {}
    ways: tuple[str, ...] = ("plain", "corrected")


RECIPES = {
    "pets_ensemble": Recipe("pets_ensemble", "probabilistic ensemble"),
    "behaviour_cloning": Recipe("behaviour_cloning", "behaviour cloning"),
    "neural_process": Recipe("neural_process", "neural process"),
    "neural_process_gentle": Recipe(
        "neural_process", "neural process, weaker pull", {"pull": 0.1}, ("corrected",)
    ),
}
WORDS = {"plain": "plain NLL", "corrected": "with `fisher8`"}


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
    """A row per program and way, the learning rates side by side; the best of a row emphasised."""
    cells = {cell["spec"]["recipe"]: cell for cell in store.cells("recipes")}
    rows, rates = [], []
    for name, recipe in RECIPES.items():
        if name not in cells:
            continue
        rates = cells[name]["spec"]["rates"]
        for way in recipe.ways:
            values = cells[name]["result"][way]
            best = min(_mean(seeds) for seeds in values)
            rows.append([recipe.label, WORDS[way], *(_text(seeds, best) for seeds in values)])
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
