"""Which cells the study of leave-one-out consists of. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from benchmarks.machinery.jobs import ChosenJob

REFITS = ("yacht",)
SETS = ("yacht", "concreteslump", "servo", "autompg", "boston", "energy", "stock", "concrete")
FOLDS = 10

# Chosen on half of the sets, among 0, 0.001, 0.003, 0.01 and 0.03.
DAMPING = 0.01
CHOOSING = ("yacht", "servo", "boston", "stock")

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
