"""The section on programs of other authors: a table and a picture for each of them."""

import functools
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.adoption import report_parts
from benchmarks.experiments.adoption.pictures import draw_curves
from benchmarks.experiments.adoption.plan import METHODS, PROGRAMS
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store

_SCORES = {"test_nll": "NLL", "test_rmse": "RMSE", "test_rollout_rmse": "RMSE after 10 steps"}


class Chosen(NamedTuple):
    """A method on a problem at the rate with the best validation NLL.

    Every training is scored at the evaluation with its best validation NLL, for all methods alike.
    """

    rate: float | None
    scores: dict[str, np.ndarray]
    """One value a seed."""
    steps: list[int]
    curve: np.ndarray
    """Test NLL of the chosen rate, (seeds, evaluations)."""
    diverged: int
    """Rates at which a training ended with a validation NLL that is not finite."""
    seconds: float = 0.0
    """Processor time of a seed, all rates together."""


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    blocks: list[Block] = []
    for name in PROGRAMS:
        if PROGRAMS[name].goes_on is None:
            blocks += program_blocks(store, name)
    blocks += report_parts.blocks(store)
    return Section("Programs of other authors", [Paragraph(_WORDS), *blocks]) if blocks else None


_WORDS = (
    "Every program in an environment of its own, trained as it is and with its loss replaced. "
    "Learning rate and evaluation with the best validation NLL, for all methods alike; test "
    "scores, mean over seeds (smallest to largest). The last two methods have no learning rate and "
    "replace the program's loop. Processor seconds are those of one seed, all rates together."
)


def program_blocks(store: Store, name: str) -> list[Block]:
    """Table and picture of one program; nothing if nothing is stored."""
    found = chosen(store, name)
    if not found:
        return []
    caption = (
        f"{PROGRAMS[name].package}: test NLL over steps at the rate chosen, median over seeds; on "
        "the right the scores of the table, mean and range"
    )
    figure = Figure(f"adoption_{name}", functools.partial(draw_curves, found), caption)
    return [table(store, name, found), figure]


def chosen(store: Store, name: str) -> dict[tuple[str, str], Chosen]:
    """What is stored of a program, by problem and method."""
    cells = {
        (problem, method): store.load(store.path(f"adoption/{name}-{problem}-{method}"))
        for problem in PROGRAMS[name].problems
        for method in METHODS
    }
    return {key: choose(cell) for key, cell in cells.items() if cell is not None}


def choose(cell: dict[str, Any]) -> Chosen:
    """The rate with the best mean validation NLL, each training at its best evaluation."""
    runs = cell["result"]["runs"]
    validation = np.array(
        [[_finite(run["validation_nll"]) for run in seeds] for seeds in runs], float
    )
    best = np.argmin(validation.min(axis=2).mean(axis=1))
    looks = validation[best].argmin(axis=1)
    scores = {
        score: np.array(
            [_finite(run[score])[look] for run, look in zip(runs[best], looks, strict=True)]
        )
        for score in _SCORES
        if score in runs[best][0]
    }
    curve = np.array([_finite(run["test_nll"]) for run in runs[best]])
    diverged = int(np.sum(np.isinf(validation[:, :, -1]).any(axis=1)))
    rate = cell["spec"]["rates"][best]
    seconds = cell["result"].get("seconds", 0.0) / len(runs[best])
    return Chosen(rate, scores, cell["result"]["steps"], curve, diverged, seconds)


def _finite(values: list[float | None]) -> np.ndarray:
    """A score that was not finite is the worst there is."""
    return np.array([np.inf if value is None else value for value in values])


def table(store: Store, name: str, found: dict[tuple[str, str], Chosen]) -> Table:
    """A row for each problem and method; the best score of a problem emphasised."""
    names = [score for score in _SCORES if any(score in one.scores for one in found.values())]
    best = {
        (problem, score): min(
            one.scores[score].mean() for (other, _), one in found.items() if other == problem
        )
        for problem, _ in found
        for score in names
    }
    rows = [
        [
            problem,
            METHODS[method][0],
            "none" if one.rate is None else f"{one.rate:g}",
            f"{one.steps[-1]:,}",
            f"{one.seconds:.1f}",
            *(_text(one.scores[score], best[problem, score]) for score in names),
        ]
        for (problem, method), one in found.items()
    ]
    header = [
        "problem",
        "method",
        "rate",
        "steps",
        "seconds of a seed",
        *(_SCORES[score] for score in names),
    ]
    return Table(_caption(store, name, found), header, rows)


def _caption(store: Store, name: str, found: dict[tuple[str, str], Chosen]) -> str:
    cells = [store.load(store.path(f"adoption/{name}-{p}-{m}")) for p, m in found]
    results = [cell["result"] for cell in cells if cell is not None]
    lines = results[0]["changed_lines"]
    minutes = sum(result["seconds"] for result in results) / 60
    program = PROGRAMS[name]
    return (
        f"{program.package}, {program.label}: {lines} lines changed, {program.seeds} seeds, "
        f"{minutes:.1f} minutes of one core"
    )


def _text(values: np.ndarray, best: float) -> str:
    if not np.isfinite(values).all():
        return "diverged"
    text = f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"
    return f"**{text}**" if values.mean() == best else text
