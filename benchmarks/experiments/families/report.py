"""The recovery table from stored results, and how many families need fewer steps."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.experiments.families.plan import RECIPES, TOLERANCE
from benchmarks.experiments.families.problems import PROBLEMS
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store

COMPARISONS = {
    "both as planned": ("planned", "planned"),
    "both at the first crossing": ("crossing", "crossing"),
    "Fisher8 as planned, Adam at its first crossing": ("planned", "crossing"),
}
HEADER = (
    "family",
    "Fisher8, planned",
    "Adam, planned",
    "Fisher8, crossing",
    "Adam, crossing",
    "lowest excess of Fisher8",
    "of Adam",
)


def section(store: Store) -> Section | None:
    """The table of all stored families and the counts below it; None without results."""
    rows = [cell["result"] for cell in store.cells("families/recovery")]
    if not rows:
        return None
    rows.sort(key=lambda row: list(PROBLEMS).index(row["family"]))
    caption = (
        f"Steps until the held-out NLL is within {TOLERANCE} nats of the true parameters' own, and "
        "the lowest excess of all lengths"
    )
    table = Table(caption, HEADER, [_row(row) for row in rows])
    blocks: list[Block] = [table, Paragraph("\n".join(counts(rows)))]
    return Section("Recovery of every family", [*blocks, *_recipe_blocks(store)])


def _recipe_blocks(store: Store) -> list[Block]:
    """Presets with their defaults beside Adam as planned, for what is stored of them."""
    found: dict[str, dict[str, Any]] = {
        recipe: {
            cell["result"]["family"]: cell["result"] for cell in store.cells(f"families/{recipe}")
        }
        for recipe in RECIPES
    }
    found = {recipe: rows for recipe, rows in found.items() if rows}
    if not found:
        return []
    names = [name for name in PROBLEMS if any(name in rows for rows in found.values())]
    adam = {name: row["adam"] for rows in found.values() for name, row in rows.items()}
    lines = [
        [name, *(_needed(rows.get(name)) for rows in found.values()), str(adam[name] or "-")]
        for name in names
    ]
    caption = (
        "Presets with nothing but the number of steps, at lengths up to Adam's: the shortest that "
        "ends within the tolerance"
    )
    header = ["family", *(RECIPES[recipe] for recipe in found), "Adam, best of six"]
    blocks: list[Block] = [Table(caption, header, lines)]
    for recipe, rows in found.items():
        pairs = [(row["fisher8"]["planned"], row["adam"]) for row in rows.values()]
        fewer = sum(ours is not None and ours < (baseline or np.inf) for ours, baseline in pairs)
        equal = sum(ours is not None and ours == baseline for ours, baseline in pairs)
        words = f"in fewer steps than Adam in {fewer} of {len(pairs)} families, equal in {equal}."
        blocks.append(Paragraph(f"`{RECIPES[recipe]}`: {words}"))
    return blocks


def _needed(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run"
    return str(row["fisher8"]["planned"] or "not by then")


def counts(rows: Iterable[dict[str, Any]]) -> list[str]:
    """How many families are recovered, and how many in fewer steps by each comparison."""
    rows = list(rows)
    recovered = [row for row in rows if row["fisher8"]["planned"]]
    lines = [f"- within {TOLERANCE} nats: {len(recovered)} of {len(rows)}"]
    for words, (ours, adam) in COMPARISONS.items():
        needed = [(row["fisher8"][ours], row["adam"][adam] or np.inf) for row in recovered]
        fewer, equal = sum(a < b for a, b in needed), sum(a == b for a, b in needed)
        lines.append(
            f"- in fewer steps than Adam, {words}: {fewer} of {len(rows)}, equal in {equal}"
        )
    return lines


def _row(row: dict[str, Any]) -> list[str]:
    """One family: the steps needed in both senses, the lowest excess of all lengths."""
    sides = row["fisher8"], row["adam"]
    steps = [str(side[sense] or "-") for sense in ("planned", "crossing") for side in sides]
    # None stands for a length at which every run diverged.
    ends = [filter(None, side["excess_by_length"].values()) for side in sides]
    return [row["family"], *steps, *(f"{min(values):.3f}" for values in ends)]
