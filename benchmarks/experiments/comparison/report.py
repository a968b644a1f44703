"""The report's section on optimisers: one table of all problems, angles, one picture."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.comparison.plan import (
    ANGLE_SETTINGS,
    DIRECTIONS,
    LABELS,
    PROBLEMS,
    SCENE,
)
from benchmarks.experiments.curvature.report import mean_nll
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store

Result = dict[str, Any]

FISHER8, NATURAL = DIRECTIONS.index("Fisher8"), DIRECTIONS.index("natural gradient")


def section(store: Store) -> Section | None:
    """Tables and picture from result files; None if there are none."""
    found = _results(store)
    blocks: list[Block] = []
    if found:
        blocks += [_table(found), Paragraph(_budgets(store))]
    scene = store.read("comparison/scene")
    if scene is not None:
        blocks.append(_scene_table(scene))
    angles = _angles(store)
    if angles:
        blocks.append(_angle_table(angles))
        words = (
            "The angle between two methods' directions weighs all parameters alike; that between "
            "their movements of the batch's predictions weighs them by the Fisher metric."
        )
        blocks.append(Paragraph(words))
    if found and angles:
        draw = functools.partial(draw_comparison, store)
        words = "NLL over processor time, and angles to the natural gradient's step along training."
        blocks.append(Figure("comparison", draw, words))
    return Section("Optimisers beside the natural gradient", blocks) if blocks else None


def _results(store: Store) -> dict[str, dict[str, Result]]:
    """Results by problem and method: the runs here, and the short budget of the UCI sets."""
    names = {problem: f"comparison/{problem}-" for problem in PROBLEMS}
    found = {
        problem: {m: store.read(prefix + m) for m in LABELS} for problem, prefix in names.items()
    }
    for dataset in DATASETS:
        found[dataset] = {m: store.read(f"curvature/time-short-{m}-{dataset}") for m in LABELS}
    known = {
        problem: {method: cell for method, cell in cells.items() if cell is not None}
        for problem, cells in found.items()
    }
    return {problem: cells for problem, cells in known.items() if cells}


def _table(found: dict[str, dict[str, Result]]) -> Table:
    methods = [m for m in LABELS if any(m in cells for cells in found.values())]
    rows = []
    for problem, cells in found.items():
        best = min(cells, key=lambda m: mean_nll(cells[m]))
        rows.append([problem, *(_text(cells.get(m), m == best) for m in methods)])
    caption = (
        "Test RMSE / NLL after the same processor time, mean over splits or seeds; the best NLL in "
        "bold"
    )
    return Table(caption, ["problem", *(LABELS[m] for m in methods)], rows)


def _text(cell: Result | None, is_best: bool) -> str:
    if cell is None:
        return ""
    if not np.isfinite(mean_nll(cell)):
        return "diverged"
    text = f"{np.mean(cell['rmse']):.3g} / {np.mean(cell['nll']):.2f}"
    return f"**{text}**" if is_best else text


def _budgets(store: Store) -> str:
    texts = []
    for problem, setting in PROBLEMS.items():
        costs = store.read(f"comparison/costs-{problem}")
        if costs is not None:
            seconds = setting.adam_steps * costs["adam_nll"][1]
            texts.append(f"{problem}: {seconds:.2g} s of processor time for each run")
    texts.append("the UCI sets have the short budget of the section before")
    return f"{'; '.join(texts)}."


def _scene_table(scene: Result) -> Table:
    rows = []
    for row in scene["rows"]:
        seconds, test = row["seconds_per_step"], row["test"]
        figures = [f"{test['rmse']:.2f}", f"{test['nll']:.2f}", f"{test['ece']:.3f}"]
        rows.append([LABELS[row["method"]], f"{1000 * seconds:.0f}", str(row["steps"]), *figures])
    caption = (
        "Stereo pair, a prediction for every pixel, the same processor time; the natural gradient "
        f"by at most {SCENE.iterations} conjugate gradients a step"
    )
    return Table(caption, ["method", "ms a step", "steps", "RMSE", "NLL", "ECE"], rows)


def _angles(store: Store) -> dict[str, Result]:
    found = {problem: store.read(f"comparison/angles-{problem}") for problem in ANGLE_SETTINGS}
    return {problem: result for problem, result in found.items() if result is not None}


def _angle_table(angles: dict[str, Result]) -> Table:
    rows = []
    for problem, result in angles.items():
        for space in ("parameters", "predictions"):
            cosines = np.array(result[space], float)
            for when, look in (("first", 0), ("last", -1)):
                to_fisher8, to_natural = (
                    [_degrees(cosines[look][other, index]) for index in range(len(DIRECTIONS))]
                    for other in (FISHER8, NATURAL)
                )
                picked = [to_fisher8[0], *to_fisher8[2:], *to_natural[:4]]
                step = result["steps"][look]
                rows.append([problem, space, f"{when} ({step:,})", *picked])
    header = ["problem", "in", "look (step)"]
    others = [name for name in DIRECTIONS if name != "Fisher8"]
    header += [f"{name} to Fisher8" for name in others]
    header += [f"{name} to whole" for name in DIRECTIONS[:4]]
    caption = "Angles in degrees along a training by Adam on Fisher8 gradients, mean over seeds"
    return Table(caption, header, rows)


def _degrees(cosine: float) -> str:
    return f"{np.degrees(np.arccos(np.clip(cosine, -1, 1))):.0f}"


def draw_comparison(store: Store) -> bytes:
    """Above the NLL over processor seconds, below the angles to the natural gradient's movement."""
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import to_png

    found, angles = _results(store), _angles(store)
    problems = [problem for problem in angles if problem in found]
    figure, axes = plt.subplots(
        2, len(problems), figsize=(4 * len(problems), 6.5), layout="constrained", squeeze=False
    )
    for column, problem in zip(axes.T, problems, strict=True):
        _draw_runs(column[0], found[problem])
        column[0].set(title=problem, xlabel="processor seconds", ylabel="test NLL")
        _draw_angles(column[1], angles[problem])
        column[1].set(xlabel="training step", ylabel="angle to the natural gradient, degrees")
    for row, place in zip(axes, ("upper right", "lower right"), strict=True):
        row[0].legend(fontsize=8, loc=place)
    return to_png(figure)


def _draw_runs(ax: Any, cells: dict[str, Result]) -> None:
    ends = []
    for method, cell in cells.items():
        seconds = cell["seconds_per_step"] * np.array(cell["steps_at_looks"])
        values = np.array(cell["nll_over_time"], float)
        ax.plot(seconds, values, label=LABELS[method])
        ends.append(np.nanmin(values))
    spread = max(0.5, 1.5 * (np.median(ends) - min(ends)))
    ax.set_ylim(min(ends) - 0.1 * spread, min(ends) + 2 * spread)


def _draw_angles(ax: Any, result: Result) -> None:
    """Solid in the space of predictions, dotted in that of parameters."""
    for space, style in (("predictions", "-"), ("parameters", ":")):
        cosines = np.clip(np.array(result[space], float), -1, 1)
        for index, name in enumerate(DIRECTIONS[:4]):
            degrees = np.degrees(np.arccos(cosines[:, index, NATURAL]))
            label = name if style == "-" else None
            ax.plot(result["steps"], degrees, style, color=f"C{index}", label=label)
    ax.set_ylim(0, 100)
