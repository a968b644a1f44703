"""What the study of the two norms consists of. Free of JAX."""

from pathlib import Path
from typing import NamedTuple

# The part of the log-variance beside that of the mean; None follows the batch, see `jobs.py`.
RATIOS: tuple[float | None, ...] = (0.1, 0.3, 1.0, 3.0, None)
RATES = (0.001, 0.003, 0.01, 0.03)
SEEDS, STEPS, BATCH, WIDTHS = 3, 1000, 64, (50, 50)

# A ratio is chosen on the first half and reported on the second.
CHOOSING = ("boston", "concrete", "energy", "wine")
REPORTING = ("kin8nm", "naval", "power", "yacht")
PROCESS = "neural_process"  # the program of `examples/`, which is the reason to ask
# Loss, ratio, and whether mean and log-variance share their layers.
VARIANTS = tuple(
    (loss, ratio, trunk)
    for loss in ("nll", "fisher8")
    for ratio in (1.0, 0.1)
    for trunk in ("shared", "apart")
)
PROCESS_STEPS = 500


class Job(NamedTuple):
    """All ratios, rates and seeds of one problem."""

    problem: str
    data: Path | None
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"norm_ratio/{self.problem}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        if self.problem == PROCESS:
            what: dict[str, object] = {"variants": VARIANTS, "steps": PROCESS_STEPS}
        else:
            what = {"ratios": RATIOS, "steps": STEPS}
        return {"problem": self.problem, "rates": RATES, "seeds": SEEDS, **what}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return f"python -m benchmarks norm_ratio --problems {self.problem}"
