"""The study of one default: gaps to the truth, and fits of the sinusoid."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.one_default.plan import (
    ACTIVATIONS,
    CHOOSING,
    FITTED,
    LENGTHS,
    METHODS,
    NOISES,
    PROBLEMS,
    RATES,
    SINUSOID,
    STEPS,
    methods_of,
)
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.store import Store

COSTS = "one_default/costs"
Gaps = dict[tuple[str, str, str, int], float]


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    gaps = load(store)
    if not gaps:
        return None
    words = (
        "NLL on 5,000 new rows above that of the truth, in nats, median of three seeds; 2,000 "
        "rows, 2x64 units. Training by evidence was chosen on the cells with a star. Adam has the "
        f"best of {len(RATES)} rates and two lengths by the test rows themselves."
    )
    blocks: list[Block] = [
        Paragraph(words),
        Figure("one_default", functools.partial(draw, gaps), "Gap to the truth, cell by cell"),
        gaps_table(gaps),
        verdicts(gaps),
    ]
    errors = {
        (noise, method): store.read(f"one_default/{SINUSOID}-{noise}-{method}")
        for noise in NOISES
        for method in methods_of(SINUSOID)
    }
    if any(errors.values()):
        blocks.append(sinusoid_table(errors))
    costs = store.read(COSTS)
    if costs is not None:
        rows = [[METHODS[m], *(f"{costs[f'{m}-{s}']:.2f}" for s in STEPS)] for m in METHODS]
        header = ["method", *(f"{steps} steps" for steps in STEPS)]
        blocks.append(Table("Processor seconds of a training, compiled", header, rows))
    return Section("One default", blocks)


def load(store: Store) -> Gaps:
    """The median gap of every cell; infinite where it was not finite."""
    found: Gaps = {}
    for problem in PROBLEMS:
        for activation in ACTIVATIONS:
            for method in METHODS:
                result = store.read(f"one_default/{problem}-{activation}-{method}")
                if result is None:
                    continue
                gap = result["gap"]
                for steps in STEPS:
                    key = problem, activation, method, steps
                    found[key] = best_of_adam(gap) if method == "adam" else _median(gap[str(steps)])
    return found


def best_of_adam(gap: dict[str, Any]) -> float:
    """The best median over lengths and rates, the same for both budgets."""
    return min(_median(gap[str(length)][i]) for length in LENGTHS for i in range(len(RATES)))


def _median(values: list[float | None]) -> float:
    return float(np.median([np.inf if value is None else value for value in values]))


def _cells(gaps: Gaps) -> list[tuple[str, str]]:
    """Problems and activations of which something is stored."""
    every = [(problem, activation) for problem in PROBLEMS for activation in ACTIVATIONS]
    return [c for c in every if any((*c, m, STEPS[0]) in gaps for m in METHODS)]


def gaps_table(gaps: Gaps) -> Table:
    """A row for each problem and activation."""
    rows = []
    for cell in _cells(gaps):
        star = "*" if cell in CHOOSING else ""
        texts = []
        for steps in STEPS:
            values = [gaps.get((*cell, method, steps)) for method in METHODS]
            best = min(value for value in values if value is not None)
            texts += ["" if value is None else _text(value, value == best) for value in values]
        rows.append([f"{cell[0].replace('_', ' ')}, {cell[1]}{star}", *texts])
    header = ["cell", *(f"{title}, {steps}" for steps in STEPS for title in METHODS.values())]
    return Table("Gap to the NLL of the truth", header, rows)


def _text(value: float, is_best: bool) -> str:
    text = f"{value:.3f}" if value < 10 else f"{value:.3g}"
    return f"**{text}**" if is_best else text


def verdicts(gaps: Gaps) -> Table:
    """Growth from the short to the long budget, wins over Adam, the worst cell."""
    rows = []
    for title, chosen in (("chosen on", True), ("others", False)):
        for method in METHODS:
            both = [
                c for c in _cells(gaps) if {(*c, m, STEPS[0]) for m in (method, "adam")} <= {*gaps}
            ]
            cells = [cell for cell in both if (cell in CHOOSING) is chosen]
            if not cells:
                continue
            short, long = (np.array([gaps[(*c, method, s)] for c in cells]) for s in STEPS)
            adam = [np.array([gaps[(*c, "adam", s)] for c in cells]) for s in STEPS]
            wins = sum(int(np.sum(a < b)) for a, b in zip((short, long), adam, strict=True))
            change = np.subtract(
                long, short, where=np.isfinite(long), out=np.full(len(cells), np.inf)
            )
            grown = f"{int(np.sum(change <= 0))} of {len(cells)}"
            won = "" if method == "adam" else f"{wins} of {2 * len(cells)}"
            worst = max(short.max(), long.max())
            median = f"{np.median(change):+.3f}"
            rows.append([title, METHODS[method], grown, median, won, _text(worst, False)])
    header = ["cells", "method", "3,000 not above 500", "median change", "below Adam", "worst gap"]
    return Table("Summary", header, rows)


def sinusoid_table(errors: dict[tuple[str, str], dict[str, Any] | None]) -> Table:
    """How many seeds are fitted."""
    rows = []
    for (noise, method), result in errors.items():
        if result is None:
            continue
        rmse = np.array([np.inf if v is None else v for v in result["rmse"]])
        fitted = f"{int(np.sum(rmse < FITTED[noise]))} of {len(rmse)}"
        rows.append([noise, METHODS[method], fitted, f"{np.median(rmse):.4f}", f"{rmse.max():.4f}"])
    header = ["noise", "method", "fitted", "RMSE, median", "worst"]
    return Table("The sinusoid of twelve periods, 2,000 steps", header, rows)


def draw(gaps: Gaps) -> bytes:
    """A panel for each budget, a row of dots for each cell."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2, figsize=(8.5, 4), sharex=True, sharey=True, layout="constrained"
    )
    cells = _cells(gaps)
    marks = dict(zip(METHODS, "os^x", strict=True))
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    for ax, steps in zip(axes, STEPS, strict=True):
        for index, (method, title) in enumerate(METHODS.items()):
            values = [gaps.get((*cell, method, steps), np.nan) for cell in cells]
            places = np.arange(len(cells))[::-1]
            label = title.replace("`", "")
            ax.plot(values, places, marks[method], color=f"C{index}", label=label)
        ax.set(xscale="log", xlabel="nats above the truth", title=f"{steps:,} steps")
        ax.set_xlim(ticks[0], ticks[-1])  # beyond are trainings that broke down
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.grid(axis="x")
    names = [f"{problem.replace('_', ' ')}, {activation}" for problem, activation in cells]
    axes[0].set_yticks(np.arange(len(cells))[::-1], names)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return to_png(figure)
