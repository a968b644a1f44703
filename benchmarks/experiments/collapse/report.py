"""The grid as tables: how many trainings collapsed or diverged, and how many units are dead."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.collapse.data import SETS
from benchmarks.experiments.collapse.plan import (
    ACTIVATIONS,
    BATCHES,
    GROUPS,
    METHODS,
    PLACES,
    SEEDS,
    SEEDS_OF_LARGEST,
    STEPS,
    VARIANTS,
    WIDTHS,
)
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store

# A constant has a training RMSE of 1: targets are standardised.
DIVERGED_RMSE = 1.5
CONSTANT_SPREAD = 1e-3
CONSTANT_SHARE = 0.9


class Run(NamedTuple):
    """One training."""

    place: dict[str, Any]
    name: str
    scores: dict[str, Any]

    @property
    def is_diverged(self) -> bool:
        """Numbers that are not finite, or far worse than a constant on its own training rows."""
        error = self.scores["train_rmse"]
        return bool(self.scores["not_finite"]) or error is None or error > DIVERGED_RMSE

    @property
    def is_constant(self) -> bool:
        """The prediction does not depend on the input any more."""
        share, spread = self.scores["constant_share"], self.scores["spread"]
        return not self.is_diverged and (share > CONSTANT_SHARE or spread < CONSTANT_SPREAD)


def section(store: Store) -> Section | None:
    """What is stored of the grid; None without results."""
    runs, blocks = list(load(store)), _variant_tables(store)
    if not runs and not blocks:
        return None
    for method, words in METHODS.items():
        mine = [run for run in runs if run.place["method"] == method]
        if mine:
            blocks += [_table(words, mine), Paragraph(sentence(words, mine, method))]
    if runs:
        blocks.append(_dead_table(runs))
    return Section("Does a training end at a constant?", blocks)


def _variant_tables(store: Store) -> list[Block]:
    """NLL of the training rows and dead units, by variant and place, for both groups of sets."""
    runs = list(load(store, "collapse-variants"))
    words = {
        "chosen": "Variants of the default optimizer on the sets by which it was chosen",
        "others": "Before and after on other sets, activations and sizes",
    }
    return [
        _variant_table(words[group], [run for run in runs if run.name in sets], PLACES[group])
        for group, sets in GROUPS.items()
        if any(run.name in sets for run in runs)
    ]


def _variant_table(words: str, runs: list[Run], places: Iterable[tuple[Any, ...]]) -> Table:
    names = ("activation", "width", "steps", "batch")
    rows = []
    for method, label in VARIANTS.items():
        mine = _at(runs, {"method": method})
        if mine:
            cells = [_fit_and_dead(_at(mine, dict(zip(names, p, strict=True)))) for p in places]
            rows.append([label, *cells])
    sets = ", ".join(dict.fromkeys(run.name for run in runs))
    caption = (
        f"{words} ({sets}): mean NLL of the training rows, targets of unit variance; dead units "
        "of the last hidden layer"
    )
    header = [f"{a} {w}, {s} steps of {b}" for a, w, s, b in places]
    return Table(caption, ["optimizer", *header], rows)


def _fit_and_dead(runs: list[Run]) -> str:
    if not runs:
        return "not run"
    bad = [run for run in runs if run.is_constant or run.is_diverged]
    text = f"{np.mean([run.scores['train_nll'] for run in runs]):.2f}; "
    text += f"{100 * np.mean([run.scores['dead'][-1] for run in runs]):.0f} %"
    return text + (f"; {len(bad)} of {len(runs)} constant or diverged" if bad else "")


def load(store: Store, folder: str = "collapse") -> Iterator[Run]:
    """Every stored training."""
    for cell in store.cells(folder):
        for name, scores in cell["result"].items():
            for seed in range(cell["spec"]["seeds"]):
                one = {key: values[seed] for key, values in scores.items()}
                yield Run(cell["spec"], name, one)


def sentence(words: str, runs: list[Run], method: str) -> str:
    """How many of how many."""
    constant, diverged = (
        [run for run in runs if getattr(run, kind)] for kind in ("is_constant", "is_diverged")
    )
    text = (
        f"`{words}`: **{len(constant)}** of {len(runs)} trainings end at a constant, "
        f"**{len(diverged)}** diverge ({100 * len(runs) / planned():.0f} % of the grid's "
        f"{planned()} are stored)."
    )
    for kind, found in (("constant", constant), ("diverged", diverged)):
        if found:
            text += f" {kind}: {', '.join(sorted({_where(run) for run in found}))}."
    return text


def planned() -> int:
    """The trainings of one method in the whole grid."""
    count = 0
    for width in WIDTHS:
        for steps in STEPS:
            is_largest = width == "3x256" and steps == max(STEPS)
            count += SEEDS_OF_LARGEST if is_largest else SEEDS
    return count * len(ACTIVATIONS) * len(BATCHES) * len(SETS)


def _where(run: Run) -> str:
    place = run.place
    network = f"{place['activation']} {place['width']}"
    return f"{run.name} {network}, {place['steps']} steps of {place['batch']}"


def _table(words: str, runs: list[Run]) -> Table:
    caption = (
        f"{words}: trainings that end at a constant or diverge, of those made on {len(SETS)} sets"
    )
    return _by_place(caption, runs, "batch", BATCHES, _count)


def _count(runs: list[Run]) -> str:
    bad = sum(run.is_constant or run.is_diverged for run in runs)
    return f"{bad} of {len(runs)}" if runs else "not run"


def _dead_table(runs: list[Run]) -> Table:
    """The methods side by side, where they were run."""
    caption = "Mean share of dead units in the last hidden layer (the largest of any training)"
    return _by_place(caption, runs, "method", METHODS, _dead)


def _by_place(
    caption: str,
    runs: list[Run],
    name: str,
    values: Iterable[int | str],
    cell: Callable[[list[Run]], str],
) -> Table:
    """A row for each network, budget and value of `name` that was run; activations side by side."""
    rows = []
    for width, steps, value in itertools.product(WIDTHS, STEPS, values):
        here = _at(runs, {"width": width, "steps": steps, name: value})
        if here:
            cells = [cell(_at(here, {"activation": one})) for one in ACTIVATIONS]
            rows.append([width, str(steps), str(value), *cells])
    return Table(caption, ["network", "steps", name, *ACTIVATIONS], rows)


def _dead(runs: list[Run]) -> str:
    if not runs:
        return "not run"
    shares = [run.scores["dead"][-1] for run in runs]
    return f"{100 * np.mean(shares):.1f} % ({100 * np.max(shares):.0f} %)"


def _at(runs: Iterable[Run], place: dict[str, Any]) -> list[Run]:
    return [run for run in runs if all(run.place[key] == value for key, value in place.items())]
