"""What the study of one default consists of. Free of JAX."""

import dataclasses
from pathlib import Path
from typing import ClassVar

from benchmarks.machinery.jobs import ChosenJob

METHODS = {
    "evidence": "`train_by_evidence`",
    "network": "`network_optimizer`",
    "fisher8": "`fisher8_optimizer`",
    "adam": "Adam, rate and length by the test rows",
}
PROBLEMS = ("friedman", "jumps", "heavy_tails")
ACTIVATIONS = ("relu", "tanh", "silu")
STEPS = (500, 3000)
ROWS, TEST_ROWS, BATCH, WIDTHS, SEEDS = 2000, 5000, 64, (64, 64), 3

# Everything that `train_by_evidence` does by default was chosen on these, and on the sinusoid:
# constant noise, and linear noise with the first five seeds.
CHOOSING = (("friedman", "silu"), ("jumps", "tanh"), ("heavy_tails", "relu"))

# The sinusoid of the paper, as in the study of `curvature`.
SINUSOID, NOISES = "sinusoid", ("constant", "linear")
SINUSOID_STEPS, SINUSOID_BATCH, SINUSOID_SEEDS = 2000, 100, 10
FITTED = {"constant": 0.006, "linear": 0.03}  # the largest RMSE that counts as a fit

# Adam's rates and numbers of steps, tried for either budget of the others.
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
LENGTHS = (1500, 9000)


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """All seeds and budgets of one method on one problem."""

    experiment = "one_default"
    options: ClassVar[dict[str, str]] = {
        "method": "methods",
        "problem": "problems",
        "variant": "variants",
    }

    method: str
    problem: str
    variant: str  # the activation, or the noise of the sinusoid
    seed: int
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"one_default/{self.problem}-{self.variant}-{self.method}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        if self.problem == SINUSOID:
            return super().spec | {"steps": SINUSOID_STEPS, "seeds": SINUSOID_SEEDS}
        adam = {"rates": RATES, "lengths": LENGTHS} if self.method == "adam" else {}
        return super().spec | {"steps": STEPS, "seeds": SEEDS, **adam}


def variants_of(problem: str) -> tuple[str, ...]:
    """Activations, or kinds of noise."""
    return NOISES if problem == SINUSOID else ACTIVATIONS


def methods_of(problem: str) -> tuple[str, ...]:
    """Adam is known not to fit the sinusoid in so few steps."""
    return ("evidence", "network") if problem == SINUSOID else tuple(METHODS)
