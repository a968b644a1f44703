"""Our UCI cells beside the published ones: coverage, winners, ranks. Arrays and records only."""

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.uci.plan import BUDGETS
from benchmarks.machinery import scoring
from benchmarks.machinery.baselines import WITH_VARIANCE
from benchmarks.machinery.seed_tables import published
from benchmarks.machinery.store import Store

# Those that the paper prints; cells may have more.
METRICS = {name: scoring.METRICS[name].decimals for name in ("rmse", "nll", "ece")}


class Key(NamedTuple):
    """The place of a cell."""

    optimizer: str
    rate: float
    dataset: str
    method: str


@dataclasses.dataclass(frozen=True)
class Ours:
    """One metric of one of our cells, over folds."""

    folds: np.ndarray

    @property
    def mean(self) -> float:
        return float(np.mean(self.folds))

    @property
    def std(self) -> float:
        return float(np.std(self.folds))

    @property
    def diverged(self) -> int:
        """Folds without a finite value."""
        return int(np.sum(~np.isfinite(self.folds)))


class Published(NamedTuple):
    """One metric of one published cell; None where the paper says that it diverged."""

    mean: float
    std: float


class Difference(NamedTuple):
    """One metric of one cell in both."""

    key: Key
    metric: str
    ours: Ours
    paper: Published

    @property
    def within(self) -> bool:
        """Our mean, rounded as the paper prints it, lies within one published std."""
        rounded = np.round(self.ours.mean, METRICS[self.metric])
        return bool(abs(rounded - self.paper.mean) <= self.paper.std + 1e-9)

    @property
    def within_unrounded(self) -> bool:
        """The same without rounding."""
        return bool(abs(self.ours.mean - self.paper.mean) <= self.paper.std)

    @property
    def spreads(self) -> float:
        """The difference in published fold spreads, nan if the printed spread is 0."""
        return (self.ours.mean - self.paper.mean) / self.paper.std if self.paper.std else np.nan


class Comparison:
    """All UCI cells of one seed, ours and published.

    Args:
        store: where our results are.
        seed: the run to compare.
        cells: those of the store, if they were read already.
    """

    def __init__(self, store: Store, seed: int = 0, cells: list[dict[str, Any]] | None = None):
        self.ours: dict[Key, dict[str, Ours]] = {}
        for cell in store.cells("uci") if cells is None else cells:
            spec = cell["spec"]
            if spec["seed"] == seed:
                key = Key(*(spec[n] for n in ("optimizer", "learning_rate", "dataset", "method")))
                self.ours[key] = {
                    metric: folds_of(cell["result"].get(metric, [])) for metric in METRICS
                }
        self.paper = _published()

    @property
    def tables(self) -> list[tuple[str, float]]:
        """The nine tables, as (optimiser, learning rate)."""
        return [(name, rate) for name, budget in BUDGETS.items() for rate in budget.rates]

    def differences(self, metrics: Iterable[str] = METRICS) -> list[Difference]:
        """Every metric that did not diverge in the paper and that we have."""
        return [
            Difference(key, metric, self.ours[key][metric], value)
            for key, row in self.paper.items()
            for metric in metrics
            if key in self.ours and (value := row[metric]) is not None
        ]

    @cached_property
    def missing(self) -> list[Key]:
        """Published cells that we have no result for."""
        return [key for key in self.paper if key not in self.ours]

    def winners(
        self, optimizer: str, rate: float, dataset: str, metric: str = "nll"
    ) -> tuple[str, set[str]] | None:
        """Our best method and the paper's best ones (ties as printed); None if unknown."""
        keys = [k for k in self.paper if k[:3] == (optimizer, rate, dataset)]
        if not keys or any(key not in self.ours for key in keys):
            return None
        ours = min(keys, key=lambda key: _or_inf(self.ours[key][metric].mean)).method
        values = {key.method: self._published_mean(key, metric) for key in keys}
        best = min(values.values())
        return ours, {method for method, value in values.items() if value == best}

    def agreement(self, optimizer: str, metric: str, *, rounded: bool) -> tuple[int, int]:
        """Rows (rate, set) in which a best method of ours is a published best one; of how many.

        Args:
            optimizer: of the tables.
            metric: by which methods are compared.
            rounded: our means as the paper prints them, so that ours may tie, too.
        """
        agree, rows = 0, 0
        for rate in BUDGETS[optimizer].rates:
            for dataset in _datasets(self.paper):
                found = self.winners(optimizer, rate, dataset, metric)
                if found is None:
                    continue
                best, published_best = found
                means = {
                    method: self._own_mean(Key(optimizer, rate, dataset, method), metric, rounded)
                    for method in {best, *published_best}
                }
                agree += any(means[method] == means[best] for method in published_best)
                rows += 1
        return agree, rows

    def _own_mean(self, key: Key, metric: str, rounded: bool) -> float:
        mean = self.ours[key][metric].mean
        return _or_inf(float(np.round(mean, METRICS[metric])) if rounded else mean)

    def ranks(self, metric: str, rate: float, optimizer: str = "sgd") -> dict[str, tuple]:
        """Average rank over data sets, (ours, paper), among the methods with a variance."""
        totals: dict[str, list[np.ndarray]] = {"ours": [], "paper": []}
        for dataset in _datasets(self.paper):
            keys = [Key(optimizer, rate, dataset, method) for method in WITH_VARIANCE]
            if any(key not in self.ours for key in keys):
                continue
            totals["ours"].append(_rank([_or_inf(self.ours[key][metric].mean) for key in keys]))
            totals["paper"].append(_rank([self._published_mean(key, metric) for key in keys]))
        if not totals["ours"]:
            return {}
        means = (np.mean(totals["ours"], axis=0), np.mean(totals["paper"], axis=0))
        return {m: (a, b) for m, a, b in zip(WITH_VARIANCE, *means, strict=True)}

    def _published_mean(self, key: Key, metric: str) -> float:
        value = self.paper[key][metric]
        return np.inf if value is None else value.mean


def _published() -> dict[Key, dict[str, Published | None]]:
    rows = published("uci")
    return {
        Key(r["optimizer"], r["learning_rate"], r["dataset"], r["method"]): {
            metric: None if r.get(metric) is None else Published(**r[metric]) for metric in METRICS
        }
        for r in rows
    }


def _datasets(keys: Iterable[Key]) -> list[str]:
    return list(dict.fromkeys(key.dataset for key in keys))


def folds_of(values: list[float | None]) -> Ours:
    """The stored values of all folds; the store has None for what is not finite."""
    return Ours(np.array([np.nan if value is None else value for value in values], float))


def _or_inf(value: float) -> float:
    return value if np.isfinite(value) else np.inf


def _rank(values: list[float]) -> np.ndarray:
    """Ranks from 1, ties sharing their mean."""
    array = np.array(values)
    below = np.sum(array[None] < array[:, None], axis=1)
    equal = np.sum(array[None] == array[:, None], axis=1)
    return below + (equal + 1) / 2
