"""What the study of the estimator in use consists of. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.machinery.jobs import ChosenJob

KINDS = {
    "intervals": "conformal intervals beside those of MAPIE and crepes",
    "labels": "which rows to label next",
    "updates": "partial_fit beside refits",
}
LEVEL = 0.9

# Sets with at least 300 rows. A random part of at most so many rows is tested, of the rest at most
# so many train; a fifth of these calibrates where calibration rows are needed.
INTERVALS = (
    "yacht", "autompg", "boston", "forest", "stock", "pendulum", "energy", "concrete", "solar",
    "airfoil", "wine", "parkinsons", "pumadyn32nm", "kin8nm", "power", "naval", "pol", "kin40k",
    "tamielectric",
)  # fmt: skip
MOST_TEST, MOST_TRAIN, TEST_SHARE, CALIBRATION_SHARE = 4000, 2000, 0.3, 0.2
MAPIE, CREPES = "mapie==1.6.0", "crepes==0.9.1"

# Pools, of which some rows are labelled at first and some more in every round.
LABELS = ("airfoil", "concrete", "energy", "kin8nm", "power")
STRATEGIES = {
    "random": "random rows",
    "variance": "largest epistemic variance",
    "information": "most information",
}
FIRST, PER_ROUND, ROUNDS, MOST_POOL = 60, 20, 10, 1000

# Chunks that arrive one after the other.
UPDATES = ("kin8nm", "airfoil")
CHUNKS = 20

DATASETS = {"intervals": INTERVALS, "labels": LABELS, "updates": UPDATES}
REPETITIONS = {"intervals": 2, "labels": 3, "updates": 1}
# Intervals of small sets are repeated until about so many rows were tested: among 150 rows the
# coverage of one repetition has a standard error of 2 to 3 %.
TESTED_ROWS, MOST_REPETITIONS = 1500, 8


def repetitions_of(kind: str, rows: int) -> int:
    """How often a set of so many rows is divided at random."""
    if kind != "intervals":
        return REPETITIONS[kind]
    tested = max(1, min(round(TEST_SHARE * rows), MOST_TEST))
    return min(MOST_REPETITIONS, max(REPETITIONS[kind], -(-TESTED_ROWS // tested)))


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """One kind of use of one set, repeated with other random parts."""

    experiment = "uses"
    options: ClassVar[dict[str, str]] = {"kind": "kinds", "dataset": "datasets"}

    kind: str
    dataset: str
    repetitions: int
    seed: int
    data: Path
    results: Path
    environments: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"uses/{self.kind}-{self.dataset}"

    def is_whole(self, result: dict[str, Any]) -> bool:
        """Whether a stored result has all repetitions."""
        return len(result["repetitions"]) >= self.repetitions
