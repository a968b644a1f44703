"""What the grid consists of: sets, networks, budgets, jobs and their cells. Free of JAX."""

from pathlib import Path
from typing import Any, NamedTuple

TABLES = ("airfoil", "kin40k", "parkinsons", "pol", "solar")
ACTIVATIONS = ("relu", "tanh", "silu", "gelu", "elu")
WIDTHS = {"2x50": (50, 50), "3x256": (256, 256, 256)}
STEPS = (100, 500, 2000)
BATCHES = (32, 256)
METHODS = {
    "fisher8": "fisher8_optimizer(steps)",
    "network": "network_optimizer(steps)",
    "adam": "Adam 0.001 on the plain NLL",
}
SEEDS, SEEDS_OF_LARGEST = 5, 3
MOST_TRAIN_ROWS, MOST_TEST_ROWS, LOOKED_AT = 10_000, 2_000, 2_000


class Job(NamedTuple):
    """One method and network on some sets, all sets and seeds as lanes of one program."""

    method: str
    activation: str
    width: str
    steps: int
    batch: int
    sets: tuple[str, ...]
    paths: tuple[Path, ...]
    results: Path

    @property
    def seeds(self) -> int:
        """Fewer for the largest network at the longest budget."""
        is_largest = self.width == "3x256" and self.steps == max(STEPS)
        return SEEDS_OF_LARGEST if is_largest else SEEDS

    @property
    def cell(self) -> str:
        """The name in the store; small networks keep all sets in one cell."""
        place = self.sets[0] if len(self.sets) == 1 else "all"
        network = f"{self.method}-{self.activation}-{self.width}"
        return f"collapse/{network}-{self.steps}-{self.batch}-{place}"

    @property
    def spec(self) -> dict[str, Any]:
        """What defines it."""
        names = ("method", "activation", "width", "steps", "batch")
        chosen = self._asdict()
        settings = {"optimizer": METHODS[self.method], "seeds": self.seeds}
        return {name: chosen[name] for name in names} | settings | {"sets": list(self.sets)}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return (
            f"python -m benchmarks collapse --methods {self.method} --activations "
            f"{self.activation} --widths {self.width} --steps {self.steps} --batches {self.batch} "
            f"--sets {' '.join(self.sets)}"
        )

    @property
    def lane_steps(self) -> float:
        """The amount of work, about in units of one step of one small network."""
        size = 1.0 if self.width == "2x50" else 20.0
        return self.steps * len(self.sets) * self.seeds * size * (1 + self.batch / 64)


def order(jobs: list[Job]) -> list[Job]:
    """Cheap and telling ones first, so that a part of the grid is a balanced part."""

    def key(job: Job) -> tuple[object, ...]:
        is_wide = job.width != "2x50"
        return is_wide, is_wide and job.steps * job.batch, job.method != "fisher8", job.steps

    return sorted(jobs, key=key)


def groups(width: str, sets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All sets at once for small networks, one after the other for large ones."""
    return [sets] if width == "2x50" else [(name,) for name in sets]
