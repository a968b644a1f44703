"""The comparison of estimators as a table: quality, time, and the paper's best figures."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.console import console
from benchmarks.store import Store
from benchmarks.uci_data import DATASETS

PAPER = Path(__file__).parent / "paper" / "tables.json"
LABELS = {
    "fisher8": "Fisher8Regressor",
    "gradient_boosting": "GradientBoosting",
    "ngboost": "NGBoost",
}
METRICS = ("rmse", "nll")


def best_published(optimizer: str = "adam") -> dict[tuple[str, str], float]:
    """The smallest printed mean per (set, metric), over all methods and learning rates."""
    best: dict[tuple[str, str], float] = {}
    for row in json.loads(PAPER.read_text())["uci"]:
        for metric in METRICS:
            mean = (row[metric] or {}).get("mean")
            if row["optimizer"] == optimizer and mean is not None:
                key = row["dataset"], metric
                best[key] = min(mean, best.get(key, float("inf")))
    return best


def print_tables(store: Store) -> int:
    """Prints what the store holds; the exit code says whether all targets are reached."""
    cells = {
        (body["spec"]["dataset"], body["spec"]["model"]): body for body in store.cells("estimator")
    }
    if not cells:
        console.print("There are no results yet.")
        return 1
    best = best_published()
    seconds = {body["spec"]["dataset"]: body["result"] for body in store.cells("estimator-times")}
    table = Table("set", "splits", "model", "RMSE", "NLL", "seconds a fit", "one member's NLL")
    for dataset in DATASETS:
        published = (f"{best[dataset, metric]:.2f}" for metric in METRICS)
        table.add_row(dataset, "", "best of the paper, Adam", *published, "", "")
        for model, label in LABELS.items():
            if (dataset, model) in cells:
                taken = _seconds(seconds.get(dataset), model)
                table.add_row("", *_row(cells[dataset, model], label, taken))
    console.print(table)
    return 0 if _print_verdict(cells, best) else 1


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
