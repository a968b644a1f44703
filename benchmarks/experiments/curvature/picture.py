"""The picture of the front page: the sinusoid after 2,000 steps beside 700,000."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.experiments.curvature.plan import COSTS_CELL
from benchmarks.experiments.sinusoid.figure import draw_fits
from benchmarks.experiments.sinusoid.plan import true_mean
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.store import Store

# Title, cell, number of steps and the cost of one of them among the stored costs.
SHOWN = (
    ("Whole network", "curvature/sinusoid-standardised-{}", 2_000, "sinusoid_network"),
    ("Fisher8 + KL radius", "sinusoid/best-{}-fisher8_radius", 700_000, "sinusoid_radius"),
)


def draw_front(store: Store, noise: str = "linear", dpi: int = 110) -> bytes:
    """Two wide panels, with the errors over all seeds and the processor time in their titles."""
    costs = store.read(COSTS_CELL)
    columns: dict[str, Any] = {}
    for label, cell, steps, cost in SHOWN:
        result = store.read(cell.format(noise))
        if result is None or costs is None:
            raise ValueError(f"{cell.format(noise)} and {COSTS_CELL} must be stored to be drawn.")
        seconds = steps * costs[cost][1]
        title = f"{label}: {steps:,} steps, {seconds:.0f} s, RMSE {np.mean(result['rmse']):.3f}"
        columns[title] = result
    figure, axes = plt.subplots(
        len(columns), 1, figsize=(9.6, 4.6), layout="constrained", sharex=True, sharey=True
    )
    x = np.array(next(iter(columns.values()))["x"])
    draw_fits(axes, columns, true_mean(x))
    for ax, title in zip(axes, columns, strict=True):
        ax.set_title("")
        ax.set_title(title, loc="left")  # in sight on a telephone, where the picture scrolls
    axes[0].set_xlabel("")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return to_png(figure, dpi=dpi)
