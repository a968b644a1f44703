"""The report's section on the natural gradient: sinusoid, 100 steps, equal processor time."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.curvature.plan import (
    BUDGETS,
    COSTS_CELL,
    METHODS,
    SELECTION,
    SinusoidJob,
    is_network,
    program_of,
)
from benchmarks.experiments.sinusoid.plan import NOISES, true_mean
from benchmarks.experiments.sinusoid.report import spread
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store

Result = dict[str, Any]

# What of a training is judged; the last or averaged parameters by the NLL of held-out rows.
VARIANTS = {
    "end": "last parameters, for the natural gradient last or averaged",
    "either": "last or averaged parameters for all",
    "stopped": "the best of ten looks by held-out rows",
}

LONG = 700_000

VERDICT = "The natural gradient beside the best of the other methods at equal processor time, NLL"


def section(store: Store) -> Section | None:
    """Tables and pictures from result files; None if there are none."""
    blocks = [*_sinusoid_blocks(store), *_steps_blocks(store), *_time_blocks(store)]
    return Section("Natural gradient in parameter space", blocks) if blocks else None


def _sinusoid_blocks(store: Store) -> list[Block]:
    rows = [
        ["natural gradient", spec["inputs"], spec["noise"], f"{spec['steps']:,}", *_errors(result)]
        for spec, result in _cells(store, "sinusoid")
    ]
    if not rows:
        return []
    stored = [(c["spec"], c["result"]) for c in store.cells("sinusoid")]
    for spec, result in stored:
        if spec["setting"] == "best" and spec["steps"] == LONG:
            label = f"{spec['method']}, spread start"
            rows.append([label, "raw", spec["noise"], f"{LONG:,}", *_errors(result)])
    header = ["method", "inputs", "noise", "steps", "RMSE", "mean |sigma/true - 1|"]
    caption = "Sinusoid: mean over five seeds (smallest to largest)"
    blocks: list[Block] = [Table(caption, header, rows), *_sinusoid_seconds(store)]
    for noise in NOISES:
        result = store.read(f"curvature/sinusoid-standardised-{noise}")
        if result is not None:
            draw = functools.partial(draw_sinusoid, store, noise)
            words = f"{noise} noise, first seed: 2,000 steps beside 700,000; maps over training."
            blocks.append(Figure(f"curvature-sinusoid-{noise}", draw, words.capitalize()))
    return blocks


def _sinusoid_seconds(store: Store) -> list[Block]:
    costs = store.read(COSTS_CELL)
    if costs is None:
        return []
    steps = SinusoidJob._field_defaults["steps"]
    ours = steps * costs["sinusoid_network"][1]
    theirs = LONG * costs["sinusoid_radius"][1]
    return [
        Paragraph(
            f"Processor time of one seed: **{ours:.1f} s** for {steps:,} steps of the "
            f"natural gradient, {theirs:.0f} s for 700,000 steps of Fisher8 with the KL radius "
            "(a step's median times their number, both measured in turn)."
        )
    ]


def draw_sinusoid(store: Store, noise: str) -> bytes:
    """Fit and maps of the natural gradient beside those of the long trainings."""
    from benchmarks.experiments.sinusoid.figure import sinusoid_figure

    natural = store.read(f"curvature/sinusoid-standardised-{noise}")
    columns = {"Natural gradient, 2,000 steps": natural}
    for method, label in (("fisher8_radius", "Fisher8 + KL radius"), ("fisher8", "Fisher8")):
        result = store.read(f"sinusoid/best-{noise}-{method}")
        if result is not None:
            columns[f"{label}, 700,000 steps"] = result
    x = np.array(next(iter(columns.values()))["x"])  # type: ignore[index]
    return sinusoid_figure(columns, (true_mean(x), NOISES[noise](x)))  # type: ignore[arg-type]


def _steps_blocks(store: Store) -> list[Block]:
    rows = []
    for dataset in DATASETS:
        ours = store.read(f"curvature/steps-{dataset}")
        radius = store.read(f"radius/steps-last-{dataset}")
        if ours is not None:
            rows.append([dataset, _mean(ours), _mean(radius)])
    if not rows:
        return []
    caption = "100 steps, batches of 32, 2 x 50 ELU: mean RMSE / NLL over 20 splits (std)"
    header = ["set", "natural gradient", "Fisher8 + KL radius"]
    words = (
        f"Damping and radius were chosen by held-out rows of {', '.join(SELECTION)}. An "
        "earlier setting had been tried on all eight sets."
    )
    return [Table(caption, header, rows), Paragraph(words)]


def _time_blocks(store: Store) -> list[Block]:
    blocks: list[Block] = []
    lines = []
    for budget, steps in BUDGETS.items():
        found = _time_results(store, budget)
        if not found:
            continue
        caption = (
            f"Equal processor time, {budget} budget ({steps:,} steps of Adam), 2 x 50 SiLU: mean "
            "RMSE / NLL over 20 splits (std); the best NLL in bold"
        )
        for key, words in VARIANTS.items():
            cells = {
                d: {m: c if key == "end" else c[key] for m, c in of.items()}
                for d, of in found.items()
            }
            blocks.append(_time_table(f"{caption}; {words}", cells))
            lines.append(
                [budget, words, *verdict("network", cells), *verdict("network_chosen", cells)]
            )
        words = f"Test NLL and RMSE over processor time, {budget} budget, mean over 20 splits."
        draw = functools.partial(draw_time, store, budget)
        blocks.append(Figure(f"curvature-time-{budget}", draw, words))
    if not blocks:
        return []
    costs = store.read(COSTS_CELL)
    return [*([] if costs is None else [_cost_table(costs)]), _verdict_table(lines), *blocks]


def _cost_table(costs: Result) -> Table:
    rows = [
        [m.label, *(f"{1e6 * value:.1f}" for value in costs[name])]
        for name, m in METHODS.items()
        if name == program_of(name)
    ]
    caption = "Processor time of a step of one of 20 trainings in one program, microseconds"
    return Table(caption, ["method", "quartile", "median", "quartile"], rows)


def _time_results(store: Store, budget: str) -> dict[str, dict[str, Result]]:
    """Results by set and method, only sets with all methods."""
    found: dict[str, dict[str, Result]] = {}
    for dataset in DATASETS:
        cells = {m: store.read(f"curvature/time-{budget}-{m}-{dataset}") for m in METHODS}
        if all(
            cell is not None and set(cell) >= set(VARIANTS) - {"end"} for cell in cells.values()
        ):
            found[dataset] = cells  # type: ignore[assignment]
    return found


def _time_table(caption: str, found: dict[str, dict[str, Result]]) -> Table:
    rows = []
    for dataset, cells in found.items():
        best = min(cells, key=lambda method: mean_nll(cells[method]))
        texts = [_mean(cell, bold=method == best) for method, cell in cells.items()]
        rows.append([dataset + ("" if dataset in SELECTION else " (not chosen on)"), *texts])
    return Table(caption, ["set", *(method.label for method in METHODS.values())], rows)


def _verdict_table(lines: list[list[str]]) -> Table:
    header = ["budget", "judged"]
    for label in ("one setting", "damping of three"):
        header += [f"{label}: best on", "within 0.1 nats on", "furthest behind"]
    return Table(VERDICT, header, lines)


def verdict(method: str, found: dict[str, dict[str, Result]]) -> list[str]:
    """How often a form of the natural gradient is the best, or nearly, and where it is worst."""
    gaps = {
        dataset: mean_nll(cells[method])
        - min(mean_nll(cell) for name, cell in cells.items() if not is_network(name))
        for dataset, cells in found.items()
    }
    worst = max(gaps, key=lambda dataset: gaps[dataset])
    first, near = (sum(gap <= limit for gap in gaps.values()) for limit in (0.0, 0.1))
    return [f"{first} of {len(gaps)}", str(near), f"{gaps[worst]:+.2f}, {worst}"]


def mean_nll(cell: Result) -> float:
    """The mean over splits; infinite if any of them diverged."""
    values = [np.inf if value is None else value for value in cell["nll"]]
    return float(np.mean(values))


def draw_time(store: Store, budget: str) -> bytes:
    """NLL and RMSE over processor seconds, one column a set."""
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import to_png

    found = _time_results(store, budget)
    figure, axes = plt.subplots(
        2, len(found), figsize=(2.6 * len(found), 6), layout="constrained", squeeze=False
    )
    for column, (dataset, cells) in zip(axes.T, found.items(), strict=True):
        column[0].set_title(dataset)
        for ax, name in zip(column, ("nll", "rmse"), strict=True):
            _draw_curves(ax, cells, name)
            ax.set(xlabel="processor seconds", ylabel=f"test {name.upper()}")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS))
    return to_png(figure)


def _draw_curves(ax: Any, cells: dict[str, Result], name: str) -> None:
    """One curve a method; the view leaves out what is far above the best."""
    curves = {m: np.array(cell[f"{name}_over_time"], float) for m, cell in cells.items()}
    for method, values in curves.items():
        seconds = cells[method]["seconds_per_step"] * np.array(cells[method]["steps_at_looks"])
        ax.plot(seconds, values, label=METHODS[method].label)
    best = [np.nanmin(values) for values in curves.values()]
    lowest = min(best)
    # Most of the methods are in sight, and none that never came near.
    most = np.quantile(best, 0.8)
    height = max(2.0 if name == "nll" else 2 * lowest, 1.3 * (most - lowest))
    ax.set_ylim(lowest - 0.05 * height, lowest + height)


def _cells(store: Store, experiment: str) -> list[tuple[Result, Result]]:
    cells = ((cell["spec"], cell["result"]) for cell in store.cells("curvature"))
    return [(spec, result) for spec, result in cells if spec["experiment"] == experiment]


def _errors(result: Result) -> list[str]:
    return [spread(result["rmse"]), spread(result["sigma_error"])]


def _mean(result: Result | None, bold: bool = False) -> str:
    if result is None:
        return ""
    if any(value is None for value in result["nll"]):
        return "diverged"
    text = f"{np.mean(result['rmse']):.3g} / {np.mean(result['nll']):.2f}"
    text += f" ({np.std(result['nll']):.2f})"
    return f"**{text}**" if bold else text
