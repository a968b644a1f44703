"""What the comparison on tables consists of: models, sets, jobs and their cells. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar, NamedTuple

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

# The estimator with more effort costs ten times as much; only the published protocol is run.
MORE_EFFORT = {"fisher8_best": 'Fisher8Regressor, effort "best"'}

# The strongest baselines that are known, on few splits: trees with a small search, and programs in
# environments of their own. Their cells are in a comparison of their own, so that the splits of the
# models above are all used.
STRONGEST = {
    "hist_gradient_boosting_searched": "HGB, two stages, searched",
    "catboost_searched": "CatBoost, two stages, searched",
    "lightgbmlss": "LightGBMLSS, searched",
    "realmlp": "RealMLP",
    "realmlp_quantiles": "RealMLP, quantiles",
    "tabm": "TabM",
    "bde": "bde",
}
STRONGEST_SPLITS = 3


class Outside(NamedTuple):
    """A baseline in an environment of its own.

    Attributes:
        requirements: what the environment is made of.
        module: the file in `outside` that fits it.
        rows: at most so many training rows, drawn at random; more would take over ten minutes.
        seconds: of the processor, after which a fit is given up.
        is_slow: the large sets are left out.
    """

    requirements: tuple[str, ...]
    module: str
    rows: int | None = None
    seconds: float | None = None
    is_slow: bool = False


_PYTABKIT = Outside(("pytabkit",), "pytabkit")
OUTSIDE = {
    "lightgbmlss": Outside(("lightgbmlss",), "lightgbmlss"),
    "realmlp": _PYTABKIT,
    "realmlp_quantiles": _PYTABKIT,
    "tabm": _PYTABKIT._replace(rows=2000),
    "bde": Outside(("sklearn-contrib-bde",), "bde", seconds=300.0, is_slow=True),
}

# The two tables on which bde is published: its split, and as many seeds as it has, in place of
# splits. They come with bde and count in no rank.
PUBLISHED = {"airfoil_bde": 5, "bike_bde": 5}

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

# More than 5,000 training rows; all others have fewer than 1,500.
LARGE = (
    "kin8nm", "power", "naval", "parkinsons", "pumadyn32nm", "pol", "kin40k", "tamielectric",
)  # fmt: skip

# The estimator's settings were chosen on these; the others were only reported.
CHOSEN_ON = (
    "yacht", "concrete", "boston", "wine", "kin8nm", "autos",
    "servo", "forest", "stock", "solar", "airfoil", "pumadyn32nm", "parkinsons", "naval",
)  # fmt: skip


def has(model: str, dataset: str) -> bool:
    """Whether a model is fitted to a set; on its published tables bde is printed, not fitted."""
    if model in MORE_EFFORT:
        return dataset in PUBLISHED
    is_slow = model in OUTSIDE and OUTSIDE[model].is_slow
    return not (is_slow and dataset in (*LARGE, *PUBLISHED))


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
    python: Path | None = None
    """The interpreter of the model's own environment, where a cell is missing."""

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell, with the limits of the model where it has some."""
        outside = OUTSIDE.get(self.model)
        limits = {} if outside is None else {"rows": outside.rows, "seconds": outside.seconds}
        return super().spec | {name: limit for name, limit in limits.items() if limit is not None}

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
