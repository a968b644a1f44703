"""The comparison of estimators as a table: quality, time, and the paper's best figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.console import console
from benchmarks.machinery.seed_tables import published
from benchmarks.machinery.store import Store

LABELS = {
    "fisher8": "Fisher8Regressor",
    "gradient_boosting": "GradientBoosting",
    "ngboost": "NGBoost",
}
METRICS = ("rmse", "nll")


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


def print_tables(store: Store) -> int:
    """Prints what the store holds; the exit code says whether all targets are reached."""
    cells = _cells(store)
    if not cells:
        console.print("There are no results yet.")
        return 1
    best = best_published()
    seconds = _all_seconds(store)
    table = Table("set", "splits", "model", "RMSE", "NLL", "seconds a fit", "one member's NLL")
    for dataset in DATASETS:
        texts = (f"{best[dataset, metric]:.2f}" for metric in METRICS)
        table.add_row(dataset, "", "best of the paper, Adam", *texts, "", "")
        for model, label in LABELS.items():
            if (dataset, model) in cells:
                taken = _seconds(seconds.get(dataset), model)
                table.add_row("", *_row(cells[dataset, model], label, taken))
    console.print(table)
    return 0 if _print_verdict(cells, best) else 1


def markdown(store: Store) -> str:
    """The table of the documentation: means over the splits, the best of each row in bold."""
    cells = _cells(store)
    seconds = _all_seconds(store)
    best = best_published()
    heads = ["set", "score", "paper's best, Adam", *LABELS.values(), "one member"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for dataset in DATASETS:
        for metric in METRICS:
            means = {m: _mean(cells[dataset, m], metric) for m in LABELS if (dataset, m) in cells}
            lowest = min(round(value, 2) for value in means.values())
            texts = [_number(means.get(m), lowest) for m in LABELS]
            member = _mean(cells[dataset, "fisher8"], f"member_{metric}")
            row = [dataset, metric.upper(), f"{best[dataset, metric]:.2f}", *texts, f"{member:.2f}"]
            lines.append("| " + " | ".join(row) + " |")
        taken = [_seconds(seconds.get(dataset), model) for model in LABELS]
        lines.append("| " + " | ".join([dataset, "seconds a fit", "", *taken, ""]) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None, lowest: float) -> str:
    if value is None:
        return "not run"
    return f"**{value:.2f}**" if round(value, 2) == lowest else f"{value:.2f}"


def _cells(store: Store) -> dict[tuple[str, str], Any]:
    return {
        (body["spec"]["dataset"], body["spec"]["model"]): body for body in store.cells("estimator")
    }


def _all_seconds(store: Store) -> dict[str, Any]:
    return {body["spec"]["dataset"]: body["result"] for body in store.cells("estimator-times")}


def reached(
    cells: Mapping[tuple[str, str], Any], best: Mapping[tuple[str, str], float]
) -> list[str]:
    """The (set, metric) in which the estimator is at least as good, to the printed two digits."""
    return [
        f"{dataset} {metric}"
        for dataset in DATASETS
        if (dataset, "fisher8") in cells
        for metric in METRICS
        if round(_mean(cells[dataset, "fisher8"], metric), 2) <= best[dataset, metric]
    ]


def _print_verdict(cells: Mapping[tuple[str, str], Any], best: Any) -> bool:
    done = [dataset for dataset in DATASETS if (dataset, "fisher8") in cells]
    good = reached(cells, best)
    better = [
        d
        for d in done
        if _mean(cells[d, "fisher8"], "nll") < _mean(cells[d, "fisher8"], "member_nll")
    ]
    console.print(
        f"At least as good as the best of the paper's Adam tables in {len(good)} of "
        f"{2 * len(done)} cells (target: 12 of 16): {', '.join(good)}."
    )
    console.print(
        f"Ensemble better in NLL than one member on {len(better)} of {len(done)} sets (target: 7 "
        f"of 8): {', '.join(better)}."
    )
    return len(good) >= 12 and len(better) >= 7


def _seconds(result: Mapping[str, Any] | None, model: str) -> str:
    """The second fit, and the first one with compilation in brackets."""
    if result is None:
        return "not measured"
    first, second = result["processor_seconds"][model]
    return f"{second:.1f} ({first:.1f})"


def _row(body: Mapping[str, Any], label: str, seconds: str) -> list[str]:
    result = body["result"]
    member = f"{_mean(body, 'member_nll'):.3f}" if "member_nll" in result else ""
    scores = (f"{np.mean(result[m]):.3f} ± {np.std(result[m]):.3f}" for m in METRICS)
    return [
        str(len(result["rmse"])),
        label,
        *scores,
        seconds,
        member,
    ]


def _mean(body: Mapping[str, Any], name: str) -> float:
    return float(np.mean(body["result"][name]))
