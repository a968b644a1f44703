"""What the UCI tables consist of: budgets, jobs and the names of their cells. Free of JAX."""

from pathlib import Path
from typing import Any, NamedTuple

BATCH = 32
SPLITS = 20


class Budget(NamedTuple):
    """How long an optimiser runs, by steps or by epochs, and its learning rates."""

    steps: int | None
    epochs: int | None
    rates: tuple[float, ...]
    chunk: int  # steps per compiled call

    @property
    def words(self) -> str:
        """As the tables say it."""
        return f"{self.steps} steps" if self.steps else f"{self.epochs} epochs"


BUDGETS = {
    "sgd": Budget(100, None, (0.001, 0.003, 0.005, 0.01, 0.03, 0.1), 100),
    "adam": Budget(None, 100, (0.001, 0.01, 0.1), 1000),
}


class Job(NamedTuple):
    """One method on one set: all splits and learning rates train together."""

    optimizer: str
    method: str
    dataset: str
    rates: tuple[float, ...]
    seed: int
    data: Path
    results: Path

    def cell(self, rate: float) -> str:
        """The name of one cell of the tables in the store."""
        seed = "" if self.seed == 0 else f"-seed{self.seed}"
        return f"uci/{self.optimizer}-{rate:g}-{self.dataset}-{self.method}{seed}"

    def spec(self, rate: float) -> dict[str, Any]:
        """What defines that cell."""
        return {
            "optimizer": self.optimizer,
            "learning_rate": rate,
            "budget": BUDGETS[self.optimizer].words,
            "dataset": self.dataset,
            "method": self.method,
            "seed": self.seed,
        }

    def cells(self) -> dict[str, dict[str, Any]]:
        """All cells of the job."""
        return {self.cell(rate): self.spec(rate) for rate in self.rates}

    @property
    def command(self) -> str:
        """What computes the cells of this job."""
        choice = f"--optimizers {self.optimizer} --methods {self.method} --datasets {self.dataset}"
        rates = " ".join(f"{rate:g}" for rate in self.rates)
        others = "" if self.rates == BUDGETS[self.optimizer].rates else f" --rates {rates}"
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"python -m benchmarks uci {choice}{others}{seed}"

    def steps(self, train_rows: int) -> int:
        """Gradient steps of each training."""
        budget = BUDGETS[self.optimizer]
        return budget.steps or (budget.epochs or 0) * (train_rows // BATCH)
