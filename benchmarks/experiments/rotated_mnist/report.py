"""The rotated-digit table from stored results, beside the published one.

`table_rows(store)` gives one record per method and regime, `section(store)` what the report shows.
Neither computes anything that is not in the store.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.experiments.rotated_mnist.curves import (
    TITLES,
    features_figure,
    figure,
    trained_with_features,
)
from benchmarks.experiments.rotated_mnist.data import REGIMES
from benchmarks.experiments.rotated_mnist.plan import FULL_EPOCHS, SETTINGS
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.seed_tables import Cell, group_by_seed, number, published, score_texts
from benchmarks.machinery.store import Store

METRICS = ("rmse", "nll", "ece", "feature_accuracy")
PAPER_METRICS = ("rmse_degrees", "nll", "ece", "feature_accuracy_percent")
DIGITS = (2, 3, 3, 1)
HEADINGS = ("RMSE, degrees", "NLL", "ECE", "features, %")


class Row(NamedTuple):
    """A method in one regime and at one length: seeds, means and standard deviations."""

    method: str
    label: str
    regime: str
    images: str
    epochs: int
    learning_rate: float  # at the length that was run, compression included
    schedule: str
    prior: float | str
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]  # those of them that `_is_whole` leaves out of mean and std
    mean: tuple[float, ...]  # in the order of `METRICS`
    std: tuple[float, ...]
    paper: tuple[float, ...] | None


def table_rows(store: Store, images: str = "mnist") -> list[Row]:
    """Rows from all stored trainings, in the order of the published table, longest last."""
    cells = [cell for cell in store.cells(f"rotated_mnist/{images}") if "rmse" in cell["result"]]
    return collect((cell["spec"], cell["result"]) for cell in cells)


def collect(results: Iterable[Cell]) -> list[Row]:
    """Groups (spec, result) pairs that differ in nothing but the seed."""
    paper = _published()
    rows = [_row(members, paper) for members in group_by_seed(results)]
    methods = list(SETTINGS)
    return sorted(
        rows, key=lambda r: (REGIMES.index(r.regime), r.epochs, methods.index(r.method), str(r))
    )


def _row(members: Sequence[Cell], paper) -> Row:
    spec = members[0][0]
    values = np.array([[number(result[m]) for m in METRICS] for _, result in members])
    setting = SETTINGS[spec["method"]]
    seeds = [member["seed"] for member, _ in members]
    is_whole = _is_whole(values)
    values = values[is_whole] if is_whole.any() else np.full((1, len(METRICS)), np.nan)
    return Row(
        spec["method"],
        setting.label,
        spec["regime"],
        spec["images"],
        spec["epochs"],
        spec["learning_rate"] * spec["rate_factor"],
        spec["schedule"],
        spec["prior"],
        tuple(seeds),
        tuple(seed for seed, whole in zip(seeds, is_whole, strict=True) if not whole),
        tuple(values.mean(axis=0)),
        tuple(values.std(axis=0)),
        paper.get((setting.paper, spec["regime"])) if spec["images"] == "mnist" else None,
    )


def _is_whole(values: np.ndarray) -> np.ndarray:
    """False for a training that diverged: its NLL is no number, or it errs by more than a turn."""
    rmse, nll = (values[:, METRICS.index(name)] for name in ("rmse", "nll"))
    return np.isfinite(nll) & (rmse < 360)


def _published() -> dict[tuple[str | None, str], tuple[float, ...]]:
    return {
        (row["method"], row["noise"].removeprefix("input_")): tuple(
            row[metric]["mean"] for metric in PAPER_METRICS
        )
        for row in published("rotated_mnist")
    }


def _cells(row: Row) -> list[str]:
    """The row as text: measured with spread, and the published value in brackets."""
    std = row.std if len(row.seeds) - len(row.diverged) > 1 else None
    return score_texts(row.mean, std, row.paper, DIGITS)


def _seeds(row: Row) -> str:
    count = str(len(row.seeds))
    return f"{count}, {len(row.diverged)} diverged" if row.diverged else count


def _prior(row: Row) -> str:
    return "by evidence" if row.method == "natural_evidence" else f"{row.prior}"


def _training(row: Row) -> str:
    if row.epochs == 0:
        return "none"
    if row.method.endswith("_recipe"):
        return f"{row.epochs} epochs, as it comes"
    rate = "radius" if row.method.endswith("_radius") else f"{row.learning_rate:.2g}"
    return f"{row.epochs} epochs, {rate} {row.schedule}"


def section(store: Store) -> Section | None:
    """Everything about the rotated digits, or None without results."""
    rows = table_rows(store)
    if not rows:
        return None
    blocks: list[Block] = [Paragraph(_how_to_read())]
    blocks += tables(rows)
    caption = (
        "Test scores over training; dashed: 500 epochs. The picture ends at the top where nine "
        "tenths of the runs begin; those that diverge leave it."
    )
    blocks.append(Figure("rotated-digits", lambda: to_png(figure(store)), caption))
    if not trained_with_features(store):
        return Section("Rotated digits", blocks)
    features = (
        "Feature accuracy on test digits over training, a line for each seed. On the way the "
        "regression learns from 10,000 training images, in the tables from all 60,000, which is "
        "worth four points more. Dotted: the untrained network."
    )
    blocks.append(
        Figure("rotated-digits-features", lambda: to_png(features_figure(store)), features)
    )
    return Section("Rotated digits", blocks)


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table per regime."""
    header = ["method", "training", "lambda", *HEADINGS, "seeds"]
    found = []
    for regime, title in zip(REGIMES, TITLES, strict=True):
        lines = [
            [row.label, _training(row), _prior(row), *_cells(row), _seeds(row)]
            for row in rows
            if row.regime == regime
        ]
        if lines:
            found.append(Table(title, header, lines))
    return found


def _how_to_read() -> str:
    return (
        "Mean and deviation over the seeds that did not diverge; published values, all of "
        f"{FULL_EPOCHS} epochs, in brackets. RMSE is against the true angle, NLL (with its "
        "constant) and ECE on noisy "
        "targets; the features are judged by a logistic regression of the digit. Small learning "
        f"rates are compressed in time: multiplied by {FULL_EPOCHS} over the number of epochs. The "
        "published natural NLL chooses its prior by empirical Bayes; the plain row has a fixed "
        "one. The published table has no untrained network."
    )
