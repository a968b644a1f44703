"""The rotated-digit table from stored results, beside the published one."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from benchmarks.rotated_mnist_plan import Job


def print_table(
    console: Console, results: Sequence[tuple[Job, dict[str, Any]]], images: str
) -> None:
    for job, result in results:
        console.print(
            job.cell, result["rmse"], result["nll"], result["ece"], result["feature_accuracy"]
        )
