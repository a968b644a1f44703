"""The estimator in use: widths of intervals, labels needed, the cost of new rows."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.uses.plan import (
    FIRST,
    INTERVALS,
    LABELS,
    PER_ROUND,
    ROUNDS,
    STRATEGIES,
    UPDATES,
)
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.store import Store

METHODS = {
    "model": "model",
    "cv_plus": "CV+",
    "calibrated": "calibrated",
    "mapie": "MAPIE",
    "mapie_scaled": "MAPIE, scaled",
    "crepes": "crepes",
    "crepes_scaled": "crepes, scaled",
}
# Whose widths are compared: they are around the same model with the same calibration rows.
SAME_MODEL = tuple(METHODS)[2:]


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    found = {
        (body["spec"]["kind"], body["spec"]["dataset"]): body["result"]["repetitions"]
        for body in store.cells("uses")
    }
    if not found:
        return None
    blocks: list[Block] = []
    intervals = {
        name: found["intervals", name] for name in INTERVALS if ("intervals", name) in found
    }
    labels = {name: found["labels", name] for name in LABELS if ("labels", name) in found}
    updates = {name: found["updates", name] for name in UPDATES if ("updates", name) in found}
    if intervals:
        blocks += [interval_table(intervals), width_table(intervals)]
    if labels:
        caption = "NLL on new rows by the number of labels, for each way to choose them"
        blocks += [Figure("labels", functools.partial(draw, labels), caption), label_table(labels)]
    if updates:
        blocks.append(update_table(updates))
    words = (
        "Random parts of every set. Intervals of 90 %: of the model and by CV+ from all training "
        "rows; the others around one model with a fifth of the rows for calibration, whose mean "
        "and standard deviation MAPIE and crepes are given."
    )
    return Section("The estimator in use", [Paragraph(words), *blocks])


def interval_table(found: dict[str, list]) -> Table:
    """Coverage by method and set, means over the repetitions."""
    tested = {name: sum(rep["test_rows"] for rep in reps) for name, reps in found.items()}
    rows = [
        [name, f"{tested[name]:,}", *(f"{_mean(reps, m, 'coverage'):.3f}" for m in METHODS)]
        for name, reps in found.items()
    ]
    every = np.array([[_mean(reps, m, "coverage") for m in METHODS] for reps in found.values()])
    rows.append(["mean", "", *(f"{value:.3f}" for value in every.mean(axis=0))])
    rows.append(["least", "", *(f"{value:.3f}" for value in every.min(axis=0))])
    return Table("Coverage of 90 % intervals", ["set", "tested rows", *METHODS.values()], rows)


def width_table(found: dict[str, list]) -> Table:
    """Widths beside those of the calibrated intervals of the same model."""
    others = SAME_MODEL[1:]
    ratios = np.array(
        [
            [_mean(reps, m, "width") / _mean(reps, "calibrated", "width") for m in others]
            for reps in found.values()
        ]
    )
    rows = [[name, *(f"{v:.2f}" for v in row)] for name, row in zip(found, ratios, strict=True)]
    rows.append(["geometric mean", *(f"{v:.2f}" for v in np.exp(np.log(ratios).mean(axis=0)))])
    caption = "Mean widths beside the estimator's own calibrated intervals, the same model"
    return Table(caption, ["set", *(METHODS[m] for m in others)], rows)


def _mean(repetitions: list, method: str, score: str) -> float:
    return float(np.mean([rep["scores"][method][score] for rep in repetitions]))


def curves(repetitions: list, strategy: str) -> np.ndarray:
    """The NLL after every round, (repetitions, rounds)."""
    return np.array([rep["nll"][strategy] for rep in repetitions], float)


def labels_needed(curve: np.ndarray, goal: float) -> float:
    """How many labels bring the NLL to `goal`, between rounds by a line; nan if none do."""
    best = np.minimum.accumulate(curve)
    reached = np.flatnonzero(best <= goal)
    if not len(reached):
        return float("nan")
    last = reached[0]
    part = 0.0 if last == 0 else (best[last - 1] - goal) / (best[last - 1] - best[last]) - 1
    return FIRST + PER_ROUND * (last + part)


def label_table(found: dict[str, list]) -> Table:
    """Labels needed for the NLL that random rows reach with all of theirs."""
    rows = []
    for name, repetitions in found.items():
        goal = float(curves(repetitions, "random").mean(axis=0).min())
        cells = []
        for strategy in STRATEGIES:
            mean = curves(repetitions, strategy).mean(axis=0)
            needed = labels_needed(mean, goal)
            text = f"{needed:.0f}" if np.isfinite(needed) else f"over {FIRST + ROUNDS * PER_ROUND}"
            cells += [text, f"{mean[-1]:.3f}"]
        rows.append([name, f"{goal:.3f}", *cells])
    header = ["pool", "NLL"]
    for title in STRATEGIES.values():
        header += [f"labels, {title}", "NLL at the end"]
    return Table("Labels needed for the lowest NLL of random rows", header, rows)


def draw(found: dict[str, list]) -> bytes:
    """One panel for each pool."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(found), figsize=(2.6 * len(found), 2.8), layout="constrained"
    )
    labels = FIRST + PER_ROUND * np.arange(ROUNDS + 1)
    for ax, (name, repetitions) in zip(np.atleast_1d(axes), found.items(), strict=True):
        for index, (strategy, title) in enumerate(STRATEGIES.items()):
            every = curves(repetitions, strategy)
            ax.plot(labels, every.mean(axis=0), color=f"C{index}", label=title)
            ax.fill_between(
                labels, every.min(axis=0), every.max(axis=0), color=f"C{index}", alpha=0.15
            )
        ax.set(title=name, xlabel="labels")
    np.atleast_1d(axes)[0].set_ylabel("NLL on new rows")
    np.atleast_1d(axes)[0].legend(fontsize="small")
    return to_png(figure)


def update_table(found: dict[str, list[dict[str, Any]]]) -> Table:
    """The last chunk's NLL, and the seconds of all chunks but the first."""
    rows = []
    for name, repetitions in found.items():
        rep = repetitions[0]
        nll, seconds = rep["nll"], rep["seconds"]
        sums = [sum(seconds[way][1:]) for way in ("partial_fit", "fit")]
        behind = nll["partial_fit"][-1] - nll["fit"][-1]
        rows.append(
            [
                name,
                str(rep["rows"][-1]),
                f"{nll['fit'][-1]:.3f}",
                f"{behind:+.3f}",
                f"{sums[0]:.1f}",
                f"{sums[1]:.1f}",
                f"{100 * sums[0] / sums[1]:.0f} %",
            ]
        )
    header = ["set", "rows", "NLL of one fit", "of chunks, beside it", "seconds of partial_fit"]
    header += ["of a fit each time", "share"]
    return Table("Twenty chunks of rows, one after the other", header, rows)
