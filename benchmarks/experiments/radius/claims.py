"""The KL radius beside the published tables: which cells are better, by how much. Records only."""

from typing import NamedTuple

import numpy as np

from benchmarks.experiments.uci.comparison import METRICS, Comparison, Key, Ours, folds_of
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.store import Store

ECE_MARGIN = 0.005


class Best(NamedTuple):
    """The best published figure of a set over methods and learning rates."""

    value: float
    where: str


class Verdict(NamedTuple):
    """One cell of ours against its baseline."""

    dataset: str
    metric: str
    ours: Ours
    baseline: Best
    holds: bool


class RadiusResults:
    """All cells of the benchmark for one seed, and the published ones.

    Args:
        store: where results are.
        seed: the run to look at.
    """

    def __init__(self, store: Store, seed: int = 0):
        self.comparison = Comparison(store, seed=0)
        self.cells: dict[tuple[str, str, str], dict[str, Ours]] = {}
        self.non_finite: dict[tuple[str, str, str], int] = {}
        for cell in store.cells("radius"):
            spec = cell["spec"]
            if spec.get("seed") == seed:
                place = (spec["experiment"], spec["variant"], spec["dataset"])
                result = cell["result"]
                self.cells[place] = {m: folds_of(result.get(m, [])) for m in METRICS}
                self.non_finite[place] = int(np.sum(np.array(result["non_finite"]) > 0))

    def get(self, experiment: str, variant: str, dataset: str) -> dict[str, Ours] | None:
        """The metrics of a cell, None if it was not run."""
        return self.cells.get((experiment, variant, dataset))

    def baseline(
        self, optimizer: str, dataset: str, metric: str, method: str | None = None
    ) -> Best:
        """The lowest published mean; runs that diverged in any metric do not compete in ECE."""
        found = []
        for key, row in self.comparison.paper.items():
            if (key.optimizer, key.dataset) != (optimizer, dataset):
                continue
            value = row[metric]
            diverged = metric == "ece" and (row["rmse"] is None or row["nll"] is None)
            if value is not None and not diverged and method in (None, key.method):
                found.append(Best(value.mean, f"{key.method} at {key.rate:g}"))
        return min(found, key=lambda baseline: baseline.value)

    def own_baseline(self, optimizer: str, dataset: str, metric: str) -> Best | None:
        """The same from our own runs of the published tables, at full precision."""
        keys: list[Key] = [
            key
            for key in self.comparison.paper
            if (key.optimizer, key.dataset) == (optimizer, dataset)
        ]
        if any(key not in self.comparison.ours for key in keys):
            return None
        means = [(self.comparison.ours[key][metric].mean, key) for key in keys]
        value, key = min((m, k) for m, k in means if np.isfinite(m))
        return Best(value, f"{key.method} at {key.rate:g}, our run")

    def verdicts_of_steps(self) -> list[Verdict]:
        """100 steps: strictly better in RMSE and NLL, ECE within its margin."""
        verdicts = []
        for dataset in DATASETS:
            cell = self.get("steps", "last", dataset)
            for metric in METRICS if cell else ():
                baseline = self.baseline("sgd", dataset, metric)
                if (dataset, metric) == ("naval", "rmse"):
                    # Printed as 0.01 for every method: only our own runs can tell them apart.
                    baseline = self.own_baseline("sgd", dataset, metric) or baseline
                assert cell is not None
                margin = ECE_MARGIN if metric == "ece" else 0.0
                mean = cell[metric].mean
                holds = mean <= baseline.value + margin if margin else mean < baseline.value
                verdicts.append(Verdict(dataset, metric, cell[metric], baseline, bool(holds)))
        return verdicts

    def verdicts_of_cap(self, rate: str = "0.1") -> list[Verdict]:
        """Capped SGD at one rate: no worse than published Fisher8 at its best rate."""
        return self._no_worse("cap", rate, "sgd", method="fisher8")

    def verdicts_of_epochs(self, experiment: str, variant: str) -> list[Verdict]:
        """100 epochs: at least as good as the best Adam cell, at the printed precision."""
        return self._no_worse(experiment, variant, "adam")

    def _no_worse(
        self, experiment: str, variant: str, optimizer: str, method: str | None = None
    ) -> list[Verdict]:
        verdicts = []
        for dataset in DATASETS:
            cell = self.get(experiment, variant, dataset)
            for metric in ("rmse", "nll") if cell else ():
                assert cell is not None
                baseline = self.baseline(optimizer, dataset, metric, method)
                holds = round(cell[metric].mean, METRICS[metric]) <= baseline.value + 1e-9
                verdicts.append(Verdict(dataset, metric, cell[metric], baseline, bool(holds)))
        return verdicts
