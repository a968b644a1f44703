"""Which cells the study of leave-one-out consists of. Free of JAX."""

from pathlib import Path
from typing import NamedTuple

REFITS = ("yacht",)
SETS = ("yacht", "concreteslump", "servo", "autompg", "boston", "energy", "stock", "concrete")
FOLDS = 10

# Levenberg-Marquardt steps towards the maximum of the posterior, and from there without a row.
POLISH = 200
MORE = 4


class Job(NamedTuple):
    """One cell."""

    kind: str
    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"leave_one_out/{self.kind}-{self.dataset}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {"kind": self.kind, "dataset": self.dataset, "seed": self.seed}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return f"python -m benchmarks leave_one_out --kinds {self.kind} --datasets {self.dataset}"
