"""Methods against two scores at once, one panel a learning rate: the projections of the paper."""

import functools
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.experiments.uci.comparison import Comparison, Key
from benchmarks.experiments.uci.panels import plot_pareto_panels
from benchmarks.experiments.uci.plan import BUDGETS
from benchmarks.machinery.baselines import WITH_VARIANCE
from benchmarks.machinery.document import Figure
from benchmarks.machinery.figures import to_png

Pair = tuple[str, str]
# The three scores seen from three sides; the first picture has the optimiser's name alone.
PROJECTIONS: dict[Pair, str] = {
    ("rmse", "nll"): "",
    ("ece", "nll"): "-ece-nll",
    ("ece", "rmse"): "-ece-rmse",
}


def pareto_figures(
    comparison: Comparison, optimizer: str, labels: Mapping[str, str]
) -> list[Figure]:
    """One picture per pair of scores; none without results."""
    figures = []
    for pair, suffix in PROJECTIONS.items():
        found = pareto_scores(comparison, optimizer, pair, labels)
        if found is not None:
            panels, upper = found
            first, second = (metric.upper() for metric in pair)
            caption = (
                f"{optimizer.upper()}: z-scores of {first} and {second} per set over methods and "
                "rates; a dot is a set, a star a method's mean, an ellipse its spread; lower left "
                "is better. Triangles are cells that diverged or lie more than 100 median absolute "
                "deviations from the median: they are drawn at the edge, count there in star and "
                "ellipse, and are numbered in each panel."
            )
            names = (f"{first} (z-score)", f"{second} (z-score)")
            draw = functools.partial(_draw, panels, names, upper)
            figures.append(Figure(f"pareto-{optimizer}{suffix}", draw, caption))
    return figures


def pareto_scores(
    comparison: Comparison, optimizer: str, pair: Pair, labels: Mapping[str, str]
) -> tuple[dict[str, dict[str, np.ndarray]], tuple[float, float]] | None:
    """For each rate and method the z-scores (sets, 2), and the largest that are not outliers.

    Diverged cells are infinite; None if there is no set.
    """
    rates = BUDGETS[optimizer].rates
    sets = []
    for dataset in dict.fromkeys(key.dataset for key in comparison.paper):
        values = _values(comparison, optimizer, rates, dataset, pair)
        if np.isfinite(values).all(axis=2).sum() > 2:
            sets.append(z_scores(values))
    if not sets:
        return None
    z = np.stack([scores for scores, _ in sets], axis=2)
    upper = np.max([largest for _, largest in sets], axis=0)
    panels = {
        f"rate {rate:g}": {labels[m]: z[i, j] for j, m in enumerate(WITH_VARIANCE)}
        for i, rate in enumerate(rates)
    }
    return panels, (float(upper[0]), float(upper[1]))


def _values(
    comparison: Comparison, optimizer: str, rates: Sequence[float], dataset: str, pair: Pair
) -> np.ndarray:
    """Means of one set, (rates, methods, 2)."""
    values = np.full((len(rates), len(WITH_VARIANCE), 2), np.nan)
    for i, rate in enumerate(rates):
        for j, method in enumerate(WITH_VARIANCE):
            cell = comparison.ours.get(Key(optimizer, rate, dataset, method))
            if cell is not None:
                values[i, j] = [cell[metric].mean for metric in pair]
    return values


def z_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardised per metric, and the largest score that is not an outlier.

    Runs that blew up would set the scale of all others: they are left out of mean and deviation,
    not of the scores. What is not finite is infinite.
    """
    median = np.nanmedian(values, axis=(0, 1))
    spread = np.nanmedian(np.abs(values - median), axis=(0, 1))
    usual = np.where(np.abs(values - median) > 100 * spread, np.nan, values)
    mean, std = np.nanmean(usual, axis=(0, 1)), np.nanstd(usual, axis=(0, 1))
    z = (values - mean) / std
    return np.where(np.isfinite(z), z, np.inf), (np.nanmax(usual, axis=(0, 1)) - mean) / std


def _draw(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    names: tuple[str, str],
    upper: tuple[float, float],
) -> bytes:
    """Panels side by side, three to a row."""
    rows = -(-len(panels) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(11, 3.6 * rows), layout="constrained")
    plot_pareto_panels(panels, axes.ravel(), names=names, upper=upper)
    return to_png(figure, dpi=110)
