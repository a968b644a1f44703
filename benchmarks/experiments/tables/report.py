"""The comparison of estimators as a table: quality, time, and the paper's best figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.experiments.tables.plan import MODELS
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.document import Paragraph, Section, Table
from benchmarks.machinery.seed_tables import published
from benchmarks.machinery.store import Store

METRICS = ("rmse", "nll")
Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def section(store: Store) -> Section | None:
    """The table and what follows from it; None without results."""
    cells = load(store)
    if not cells:
        return None
    return Section("Estimators on tables", [table(store), *map(Paragraph, sentences(cells))])


def load(store: Store) -> Cells:
    """The stored results by set and model."""
    found = {}
    for cell in store.cells("estimator"):
        found[cell["spec"]["dataset"], cell["spec"]["model"]] = cell["result"]
    return found


def table(store: Store) -> Table:
    """Means over the splits, the best of each row in bold."""
    cells, best = load(store), best_published()
    seconds = {c["spec"]["dataset"]: c["result"] for c in store.cells("estimator-times")}
    rows = []
    for dataset in DATASETS:
        if not any((dataset, model) in cells for model in MODELS):
            continue
        for metric in METRICS:
            means = [_mean(cells, dataset, model, metric) for model in MODELS]
            member = _mean(cells, dataset, "fisher8", f"member_{metric}")
            texts = _bold_lowest(means), _bold_lowest([member], bold=False)
            paper = f"{best[dataset, metric]:.2f}"
            rows.append([dataset, metric.upper(), paper, *texts[0], *texts[1]])
        taken = [_seconds(seconds.get(dataset), model) for model in MODELS]
        rows.append([dataset, "seconds a fit", "", *taken, ""])
    header = ["set", "score", "paper's best, Adam", *MODELS.values(), "one member"]
    caption = "Means over the splits with default settings; seconds of a second fit (of a first)"
    return Table(caption, header, rows)


def sentences(cells: Cells) -> list[str]:
    """Where the estimator is at least as good as the paper, and what the ensemble brings."""
    done = [dataset for dataset in DATASETS if (dataset, "fisher8") in cells]
    good = reached(cells, best_published())
    better = [
        dataset
        for dataset in done
        if _mean(cells, dataset, "fisher8", "nll") < _mean(cells, dataset, "fisher8", "member_nll")
    ]
    return [
        f"At least as good as the best of the paper's Adam tables, over all methods and rates, in "
        f"{len(good)} of {2 * len(done)} cells: {', '.join(good)}.",
        f"The ensemble is better in NLL than one member on {len(better)} of {len(done)} sets: "
        f"{', '.join(better)}.",
    ]


def best_published(optimizer: str = "adam") -> dict[tuple[str, str], float]:
    """The smallest printed mean per (set, metric), over all methods and learning rates."""
    best: dict[tuple[str, str], float] = {}
    for row in published("uci"):
        for metric in METRICS:
            mean = (row[metric] or {}).get("mean")
            if row["optimizer"] == optimizer and mean is not None:
                key = row["dataset"], metric
                best[key] = min(mean, best.get(key, float("inf")))
    return best


def reached(cells: Cells, best: Mapping[tuple[str, str], float]) -> list[str]:
    """The (set, metric) in which the estimator is at least as good, to the printed two digits."""
    return [
        f"{dataset} {metric}"
        for dataset in DATASETS
        if (dataset, "fisher8") in cells
        for metric in METRICS
        if round(_mean(cells, dataset, "fisher8", metric), 2) <= best[dataset, metric]
    ]


def _mean(cells: Cells, dataset: str, model: str, name: str) -> float:
    """Over the splits; nan for what was not run."""
    return float(np.mean(cells.get((dataset, model), {}).get(name, np.nan)))


def _bold_lowest(means: list[float], *, bold: bool = True) -> list[str]:
    texts = ["not run" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
    lowest = np.nanmin(np.round(means, 2)) if bold and not np.isnan(means).all() else None
    return [
        f"**{text}**" if round(mean, 2) == lowest else text
        for mean, text in zip(means, texts, strict=True)
    ]


def _seconds(result: Mapping[str, Any] | None, model: str) -> str:
    """The second fit, and the first one with compilation in brackets."""
    if result is None:
        return "not measured"
    first, second = result["processor_seconds"][model]
    return f"{second:.1f} ({first:.1f})"
