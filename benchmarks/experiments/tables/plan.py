"""What the comparison on tables consists of: models, sets, jobs and their cells. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from benchmarks.experiments.uci.data import DATASETS as UCI
from benchmarks.experiments.uci.plan import SPLITS as UCI_SPLITS
from benchmarks.machinery.jobs import ChosenJob

# The models, by the names of their cells; those that cost least first.
MODELS = {
    "hist_gradient_boosting": "HGB, two stages",
    "catboost": "CatBoost",
    "fisher8": "Fisher8Regressor",
    "deep_ensemble": "deep ensemble",
    "first_order": "first-order",
    "ngboost": "NGBoost",
}
OURS = "fisher8"
BASELINES = tuple(model for model in MODELS if model != OURS)

# What a part of the estimator is good for; these have no rank, and only a few splits are run.
VARIANTS = {
    "plain_mixture": "the estimator, plain mixture",
    "shrunk_ensemble": "deep ensemble, shrunk variance",
}
VARIANT_SPLITS = 3

# Published splits below `tables` in the data folder; the largest have three that are used.
TABLES = {
    "concreteslump": 10,
    "autos": 10,
    "servo": 10,
    "machine": 10,
    "autompg": 10,
    "forest": 10,
    "stock": 10,
    "pendulum": 10,
    "solar": 10,
    "airfoil": 10,
    "parkinsons": 10,
    "pumadyn32nm": 10,
    "pol": 3,
    "kin40k": 3,
    "tamielectric": 3,
}

# How many splits each set has, those that take longest last.
SPLITS = {name: UCI_SPLITS for name in UCI if name not in ("naval", "power", "kin8nm")}
SPLITS |= {name: number for name, number in TABLES.items() if number == 10}
SPLITS |= dict.fromkeys(("kin8nm", "power", "naval"), UCI_SPLITS)
SPLITS |= {name: number for name, number in TABLES.items() if number < 10}

# The estimator's settings were chosen on these; the others were only reported.
CHOSEN_ON = (
    "yacht", "concrete", "boston", "wine", "kin8nm", "autos",
    "servo", "forest", "stock", "solar", "airfoil", "pumadyn32nm", "parkinsons", "naval",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """One model on the first splits of one set."""

    experiment = "tables"
    options: ClassVar[dict[str, str]] = {"model": "models", "dataset": "datasets"}

    model: str
    dataset: str
    splits: int
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"tables/{self.dataset}-{self.model}"

    def is_whole(self, result: dict[str, list]) -> bool:
        """Whether a stored result has all splits."""
        return len(result["rmse"]) >= self.splits


@dataclasses.dataclass(frozen=True)
class TimesJob(ChosenJob):
    """The processor time of two fits of one model on one set, the first with compilation."""

    experiment = "tables --times"
    options = Job.options

    model: str
    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"tables-times/{self.dataset}-{self.model}"
