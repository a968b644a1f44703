"""What the comparison of estimators consists of: models, jobs and their cells. Free of JAX."""

from pathlib import Path
from typing import NamedTuple

# The estimators, by the names of their cells.
MODELS = {
    "fisher8": "Fisher8Regressor",
    "gradient_boosting": "GradientBoosting",
    "ngboost": "NGBoost",
}


class Job(NamedTuple):
    """One model on all splits of one set."""

    model: str
    dataset: str
    splits: int
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"estimator/{self.dataset}-{self.model}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {"model": self.model, "dataset": self.dataset, "seed": self.seed}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        seed = "" if self.seed == 0 else f" --seed {self.seed}"
        names = f"--models {self.model} --datasets {self.dataset}"
        return f"python -m benchmarks estimator {names}{seed}"

    def is_whole(self, result: dict[str, list]) -> bool:
        """Whether a stored result has all splits."""
        return len(result["rmse"]) >= self.splits


class TimesJob(NamedTuple):
    """The time of a fit on one set, for all models in turn."""

    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"estimator-times/{self.dataset}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {"dataset": self.dataset, "seed": self.seed, "models": list(MODELS)}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return f"python -m benchmarks estimator --times --datasets {self.dataset}"
