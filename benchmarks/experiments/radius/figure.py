"""RMSE and NLL against the learning rate for all methods, with the radius as a flat line."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.experiments.radius.claims import RadiusResults
from benchmarks.experiments.radius.plan import CAP_RATES, VARIANTS
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.experiments.uci.plan import BUDGETS
from benchmarks.machinery.baselines import PUBLISHED
from benchmarks.machinery.figures import to_png

# A panel shows what lies within this many times the range of the best half of its points.
SHOWN_RANGE = 3.0


def learning_rate_figure(results: RadiusResults) -> bytes:
    """Four columns of sets; RMSE above NLL for each."""
    figure, axes = plt.subplots(4, 4, figsize=(13, 11), layout="constrained", sharex=True)
    for place, dataset in enumerate(DATASETS):
        for row, metric in enumerate(("rmse", "nll")):
            ax = axes[2 * (place // 4) + row, place % 4]
            _panel(ax, results, dataset, metric)
            ax.set_title(f"{dataset}, {metric.upper()}", fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("learning rate")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return to_png(figure)


def _panel(ax: Any, results: RadiusResults, dataset: str, metric: str) -> None:
    rates, shown = BUDGETS["sgd"].rates, []
    for method in PUBLISHED:
        values = [_published(results, rate, dataset, method, metric) for rate in rates]
        ax.plot(rates, values, marker="o", markersize=3, label=f"{method} (published)")
        shown += values
    capped = [results.get("cap", variant, dataset) for variant in VARIANTS["cap"]]
    if all(capped):
        values = [cell[metric].mean for cell in capped if cell]
        ax.plot(CAP_RATES, values, "k--", marker="s", markersize=3, label="fisher8, capped (ours)")
        shown += values
    cell = results.get("steps", "last", dataset)
    if cell:
        ax.axhline(cell[metric].mean, color="k", linewidth=2, label="fisher8_optimizer (ours)")
        shown.append(cell[metric].mean)
    ax.set_xscale("log")
    _limit(ax, np.array(shown, float))


def _published(
    results: RadiusResults, rate: float, dataset: str, method: str, metric: str
) -> float:
    for key, row in results.comparison.paper.items():
        if key == ("sgd", rate, dataset, method) and row[metric] is not None:
            return row[metric].mean  # type: ignore[union-attr]
    return np.nan


def _limit(ax: Any, values: np.ndarray) -> None:
    """Cuts off blown-up runs, which would flatten all other lines."""
    values = values[np.isfinite(values)]
    low, middle = values.min(), np.median(values)
    height = SHOWN_RANGE * max(middle - low, 1e-12)
    if values.max() > low + height:
        ax.set_ylim(low - 0.1 * height, low + height)
