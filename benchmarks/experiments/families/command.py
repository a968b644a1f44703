"""Recovery of every family: Fisher8 with the KL radius beside tuned Adam on the plain NLL.

Data is drawn from each family with parameters that depend on two inputs. A small network learns
them by Fisher8 with the ready recipe, at one setting for all families, and by Adam on the plain NLL
with three learning rates. The excess is the held-out NLL above that of the true parameters on the
same targets, averaged over the seeds; the goal is an excess of at most 0.02 nats.

A run has a *planned length*, over which its step falls linearly to 0. How many steps a method needs
is asked in two ways, and both methods are asked alike:

    planned    the shortest length on a common ladder whose run *ends* within the goal
    crossing   the first evaluation, every five steps, within the goal in *any* run of the method

All lengths up to 600 are run for both methods, longer ones only until both have arrived.

The first is what a user pays who plans a run. Adam may choose among six settings at every length,
three rates with the decay or at a constant rate; Fisher8 has one. The second looks into runs of all
lengths and takes the luckiest moment, so it favours the method with more runs, which is Adam.
The strictest comparison, Fisher8 as planned against Adam at its first crossing, is printed as well.

Every family is stored in a file of its own, so a run can be resumed or split.
"""

import argparse
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.experiments.families.problems import PROBLEMS, Problem
from benchmarks.experiments.families.training import (
    BATCH_SIZE,
    EVALUATE_EVERY,
    LEARNING_RATES,
    NUM_TRAIN,
    SETTING,
    Curves,
    adam_trainer,
    fisher8_trainer,
)
from benchmarks.machinery.console import console
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

TOLERANCE = 0.02
LADDER = (10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400)
FIRST_CLIMB = 600  # every run up to here is made in any case
SEEDS = (0, 1, 2)
COMPARISONS = {
    "both as planned": ("planned", "planned"),
    "both at the first crossing": ("crossing", "crossing"),
    "Fisher8 as planned, Adam at its first crossing": ("planned", "crossing"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks families`."""
    parser.add_argument("--ladder", type=int, nargs="+", default=list(LADDER))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--families", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)


def run(args: argparse.Namespace) -> int:
    """Computes what is not stored yet and prints the table of everything stored."""
    store = Store(args.results)
    for name in args.families:
        cell, spec = f"families/recovery/{name.lower().replace(' ', '_')}", _spec(name, args)
        if store.read(cell, spec) is None:
            row = compute_row(PROBLEMS[name], spec["ladder"], args.seeds)
            store.write(cell, spec=spec, result=row, provenance=provenance(_command(spec)))
            console.print(table_line(row))
    console.print("\n".join(table(store)), markup=False)
    return 0


def compute_row(problem: Problem, ladder: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Both methods on one family; the ladder is climbed on until both have arrived."""
    trainers = {"fisher8": fisher8_trainer, "adam": adam_trainer}
    train = {name: make(problem, max(ladder)) for name, make in trainers.items()}
    curves: dict[str, Curves] = {name: {} for name in train}
    done = [n for n in ladder if n <= FIRST_CLIMB] or list(ladder)
    new = done
    while True:
        for name in train:
            curves[name] |= train[name](new, seeds)
        row = {name: _summary(found, done) for name, found in curves.items()}
        left = [n for n in ladder if n > done[-1]]
        if not left or all(side["planned"] for side in row.values()):
            return {"family": problem.name, "ladder": done, **row}
        new, done = left[:1], [*done, left[0]]


def _summary(curves: Curves, ladder: Sequence[int]) -> dict[str, Any]:
    """Steps needed in both senses, and the best excess at the end of every planned length."""
    means = {name: curve.mean(0) for name, curve in curves.items()}
    ends = {steps: _best_end(means, steps) for steps in ladder}
    reached = [steps for steps in ladder if ends[steps] <= TOLERANCE]
    crossings = [_first_crossing(curve) for curve in means.values()]
    return {
        "planned": min(reached, default=None),
        "crossing": min((steps for steps in crossings if steps), default=None),
        "excess_by_length": {str(steps): round(end, 5) for steps, end in ends.items()},
        "excess_of_seeds": {
            name: [round(float(value), 5) for value in curve[:, -1]]
            for name, curve in curves.items()
        },
    }


def _best_end(means: dict[str, np.ndarray], steps: int) -> float:
    """The lowest excess after `steps` of the runs planned for them, and of those without plan."""
    ends = [
        float(mean[steps // EVALUATE_EVERY - 1])
        for name, mean in means.items()
        if name.endswith((f"over {steps}", "constant"))
    ]
    # A diverged run is no candidate.
    return min((end for end in ends if np.isfinite(end)), default=np.inf)


def _first_crossing(mean: np.ndarray) -> int | None:
    reached = np.flatnonzero(mean <= TOLERANCE)
    return int(EVALUATE_EVERY * (reached[0] + 1)) if len(reached) else None


def table(store: Store) -> list[str]:
    """The stored families as a table in Markdown, and the counts below it."""
    rows = [cell["result"] for cell in store.cells("families/recovery")]
    rows.sort(key=lambda row: list(PROBLEMS).index(row["family"]))
    head = [
        "| family | Fisher8, planned | Adam, planned | Fisher8, crossing | Adam, crossing | "
        "lowest excess of Fisher8 | of Adam |",
        "|---|---|---|---|---|---|---|",
    ]
    return [*head, *map(table_line, rows), "", *counts(rows)]


def table_line(row: dict[str, Any]) -> str:
    """One family: the steps needed in both senses, the lowest excess of all lengths."""
    ours, adam = row["fisher8"], row["adam"]
    steps = [side[sense] or "-" for sense in ("planned", "crossing") for side in (ours, adam)]
    # None stands for a length at which every run diverged.
    ends = [filter(None, side["excess_by_length"].values()) for side in (ours, adam)]
    lowest = [f"{min(values):.3f}" for values in ends]
    return "| " + " | ".join(map(str, [row["family"], *steps, *lowest])) + " |"


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


def _spec(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What determines a row, together with the code."""
    return {
        "family": name,
        "ladder": sorted(args.ladder),
        "seeds": args.seeds,
        "setting": SETTING,
        "learning_rates": LEARNING_RATES,
        "tolerance": TOLERANCE,
        "batch_size": BATCH_SIZE,
        "num_train": NUM_TRAIN,
    }


def _command(spec: dict[str, Any]) -> str:
    numbers = {name: " ".join(map(str, spec[name])) for name in ("ladder", "seeds")}
    options = " ".join(f"--{name} {values}" for name, values in numbers.items())
    return f"python -m benchmarks families --families '{spec['family']}' {options}"
