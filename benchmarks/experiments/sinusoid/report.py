"""The sinusoid section of the report: final errors of all methods, and the figure."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.sinusoid.figure import diverged, sinusoid_figure
from benchmarks.experiments.sinusoid.plan import BALL, NOISES, SETTINGS, true_mean
from benchmarks.machinery.baselines import BASELINES
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store

SHOWN = ("nll", "fisher8", "fisher8_radius")


def section(store: Store) -> Section | None:
    """Everything about the sinusoid, or None without results."""
    cells = list(store.cells("sinusoid"))
    if not cells:
        return None
    blocks: list[Block] = [Paragraph(_how_to_read()), table(cells)]
    for setting in SETTINGS:
        for noise in NOISES:
            blocks += _figure(cells, setting, noise)
    return Section("Sinusoid", blocks)


def table(cells: list[dict[str, Any]]) -> Table:
    """The errors of each of the cells."""
    rows = []
    for cell in cells:
        spec, result = cell["spec"], cell["result"]
        label = BASELINES[spec["method"]].label
        place = [spec["setting"], spec["noise"], label, f"{spec['steps']:,}"]
        rows.append([*place, spread(result["rmse"]), spread(result["sigma_error"])])
    header = ["setting", "noise", "method", "steps", "RMSE", "mean |sigma/true - 1|"]
    return Table("After training: mean over seeds (smallest to largest)", header, rows)


def _figure(cells: list[dict[str, Any]], setting: str, noise: str) -> list[Block]:
    longest: dict[str, dict[str, Any]] = {}
    for cell in sorted(cells, key=lambda cell: cell["spec"]["steps"]):
        if (cell["spec"]["setting"], cell["spec"]["noise"]) == (setting, noise):
            longest[cell["spec"]["method"]] = cell
    columns = {BASELINES[m].label: longest[m]["result"] for m in SHOWN if m in longest}
    if not columns:
        return []
    x = np.array(next(iter(columns.values()))["x"])
    draw = functools.partial(sinusoid_figure, columns, (true_mean(x), NOISES[noise](x)))
    gone = [label for label, result in columns.items() if diverged(result)]
    caption = (
        f"Setting {setting}, {noise} noise, first seed, and the truth as the oracle. From the top: "
        "fit with intervals of 68.3 and 95.4 %, local Jacobian and KL variance in a ball of radius "
        f"{BALL:g} over training. The oracle's Jacobian is that of the true mean, the networks' "
        "that of their last hidden layer."
    )
    caption += f" Diverged: {', '.join(gone)}; blank from there on." if gone else ""
    return [Figure(f"sinusoid-{setting}-{noise}", draw, caption)]


def spread(values: list[float | None]) -> str:
    """Mean, smallest and largest over seeds, or how many diverged."""
    finite = [value for value in values if value is not None]
    if len(finite) < len(values):
        return f"diverged in {len(values) - len(finite)} of {len(values)}"
    return f"{np.mean(finite):.4f} ({min(finite):.4f} to {max(finite):.4f})"


def _how_to_read() -> str:
    return (
        "y = 0.4 sin(2 pi x) + noise on [0, 12], 1000 points, 150 x 150 tanh units, SGD at 1e-3, "
        "batches of 32. RMSE is to the true mean. `literal` is the published description with "
        "PyTorch's default initialisation, `spread` places the first layer's units over the "
        "domain, `best` adds momentum 0.9 and a cosine decay."
    )
