"""Which cells the study of leave-one-out consists of. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from benchmarks.machinery.jobs import ChosenJob

REFITS = ("yacht",)
SETS = ("yacht", "concreteslump", "servo", "autompg", "boston", "energy", "stock", "concrete")
FOLDS = 10

# How far outputs move towards the optimum, in nats a row, and how results are named for it.
RADII = {"": None, "_moved": 0.1}

# Levenberg-Marquardt steps towards the maximum of the posterior, and from there without a row.
POLISH = 200
MORE = 4


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """One cell."""

    experiment = "leave_one_out"
    options: ClassVar[dict[str, str]] = {"kind": "kinds", "dataset": "datasets"}

    kind: str
    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"leave_one_out/{self.kind}-{self.dataset}"
