"""Who is ahead: means over the splits that all models have, ranks over sets, and wins."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.tables.plan import MODELS, SPLITS
from benchmarks.machinery.store import Store

# Lower is better; what is printed beside them is not ranked.
RANKED = ("rmse", "nll", "crps", "ece")

Cells = Mapping[tuple[str, str], Mapping[str, Any]]


class Comparison(NamedTuple):
    """Scores of all models on the sets that all of them have.

    Attributes:
        models: those that have a result, in the order of `MODELS`.
        datasets: the sets that all of them have.
        splits: how many splits of each set are compared: those that all models have.
        means: score -> array of shape (sets, models), means over these splits.
    """

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    splits: tuple[int, ...]
    means: dict[str, np.ndarray]

    def ranks(self, score: str) -> np.ndarray:
        """The mean rank of each model, 1 for the best; equal figures share their rank.

        A model without this score on one of the sets has nan, and the others are ranked without it.
        """
        means = self.means[score]
        below = (means[:, None, :] < means[:, :, None]).sum(axis=2)
        equal = (means[:, None, :] == means[:, :, None]).sum(axis=2)
        ranks = (below + 0.5 * (equal + 1)).mean(axis=0)
        return np.where(np.isnan(means).any(axis=0), np.nan, ranks)

    def wins(self, score: str, model: str, baseline: str) -> int:
        """On how many sets `model` is better than `baseline`."""
        column, other = self.models.index(model), self.models.index(baseline)
        return int(np.sum(self.means[score][:, column] < self.means[score][:, other]))

    def only(self, datasets: Sequence[str]) -> "Comparison":
        """The same on some of the sets."""
        kept = [k for k, name in enumerate(self.datasets) if name in datasets]
        return Comparison(
            self.models,
            tuple(self.datasets[k] for k in kept),
            tuple(self.splits[k] for k in kept),
            {score: values[kept] for score, values in self.means.items()},
        )


def load(store: Store, folder: str = "tables") -> Cells:
    """The stored results by set and model."""
    cells = store.cells(folder)
    return {(c["spec"]["dataset"], c["spec"]["model"]): c["result"] for c in cells}


def compare(cells: Cells, models: Sequence[str] = tuple(MODELS)) -> Comparison:
    """What can be compared: every figure is a mean over the same splits for all models."""
    present = tuple(model for model in models if any(key[1] == model for key in cells))
    everywhere = (name for name in SPLITS if all((name, model) in cells for model in present))
    return _collect(cells, present, list(everywhere) if present else [])


def all_of(cells: Cells, model: str) -> Comparison:
    """All sets that `model` has; what other models lack is nan."""
    present = tuple(one for one in MODELS if any(key[1] == one for key in cells))
    return _collect(cells, present, [name for name in SPLITS if (name, model) in cells])


def as_far_as(cells: Cells, model: str) -> tuple[str, ...]:
    """The models that have nearly all the sets that `model` has, nine of ten."""
    names = [name for name in SPLITS if (name, model) in cells]
    return tuple(
        one for one in MODELS if np.mean([(name, one) in cells for name in names] or [False]) >= 0.9
    )


def _collect(cells: Cells, present: tuple[str, ...], datasets: list[str]) -> Comparison:
    splits = [
        min(len(cells[name, model]["rmse"]) for model in present if (name, model) in cells)
        for name in datasets
    ]
    scores = (*RANKED, "coverage", "width", "fit_seconds")
    means = {
        score: np.array(
            [
                [_mean(cells.get((name, model)), score, number) for model in present]
                for name, number in zip(datasets, splits, strict=True)
            ]
        ).reshape(len(datasets), len(present))
        for score in scores
    }
    return Comparison(present, tuple(datasets), tuple(splits), means)


def _mean(result: Mapping[str, Any] | None, score: str, splits: int) -> float:
    if result is None or None in result[score][:splits]:
        return float("nan")
    return float(np.mean(result[score][:splits]))
