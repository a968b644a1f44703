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

# Before the grid: what the default was chosen from, by the sets `chosen`; all on Fisher8 gradients.
VARIANTS = {
    "adam_0.003": "Adam alone, 0.003 falling to 0",
    "adam_0.01": "Adam alone, 0.01 falling to 0",
    "adam_0.03": "Adam alone, 0.03 falling to 0",
    "radius_alone": "momentum and radius",
    "bound_0.1": "second moments, bound 0.1 / sqrt(n)",
    "bound_0.2": "second moments, bound 0.2 / sqrt(n)",
    "removed": "the same, means along the inputs removed",
    "short_0.2": "the same, means divided by their roots",
    "default": "the default: that with 0.3 / sqrt(n)",
    "short_0.5": "that with 0.5 / sqrt(n)",
    "short_1": "that with 1 / sqrt(n)",
}
GROUPS = {
    "chosen": ("yacht", "energy", "kin8nm", "wine", "airfoil", "solar"),
    "others": ("concrete", "boston", "naval", "power", "kin40k", "parkinsons", "pol"),
}
# Activation, network, steps and batch; on the other sets only what was the default before and is.
PLACES = {
    "chosen": (("relu", "2x50", 500, 32), ("relu", "3x256", 100, 32), ("elu", "2x50", 100, 32)),
    "others": (
        ("relu", "3x256", 500, 32),
        ("relu", "2x50", 100, 256),
        ("tanh", "2x50", 500, 32),
        ("gelu", "2x50", 500, 256),
    ),
}
REPORTED = ("bound_0.2", "default")
SEEDS_OF_VARIANTS = 3
MOST_TRAIN_ROWS, MOST_TEST_ROWS, LOOKED_AT = 10_000, 2_000, 2_000


class Job(NamedTuple):
    """One method and network on some sets, all sets and seeds as runs of one program."""

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
        """Fewer for variants, and for the largest network at the longest budget."""
        if self.is_variant:
            return SEEDS_OF_VARIANTS
        is_largest = self.width == "3x256" and self.steps == max(STEPS)
        return SEEDS_OF_LARGEST if is_largest else SEEDS

    @property
    def is_variant(self) -> bool:
        """Whether it is no part of the grid."""
        return self.method in VARIANTS

    @property
    def cell(self) -> str:
        """The name in the store; small networks keep all sets in one cell."""
        folder, place = "collapse", self.sets[0] if len(self.sets) == 1 else "all"
        if self.is_variant:
            folder, place = "collapse-variants", _group_of(self.sets)
        network = f"{self.method}-{self.activation}-{self.width}"
        return f"{folder}/{network}-{self.steps}-{self.batch}-{place}"

    @property
    def spec(self) -> dict[str, Any]:
        """What defines it."""
        names = ("method", "activation", "width", "steps", "batch")
        chosen = self._asdict()
        settings = {"optimizer": (METHODS | VARIANTS)[self.method], "seeds": self.seeds}
        return {name: chosen[name] for name in names} | settings | {"sets": list(self.sets)}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        if self.is_variant:
            return "python -m benchmarks collapse --variants"
        return (
            f"python -m benchmarks collapse --methods {self.method} --activations "
            f"{self.activation} --widths {self.width} --steps {self.steps} --batches {self.batch} "
            f"--sets {' '.join(self.sets)}"
        )

    @property
    def run_steps(self) -> float:
        """The amount of work, about in units of one step of one small network."""
        size = 1.0 if self.width == "2x50" else 20.0
        return self.steps * len(self.sets) * self.seeds * size * (1 + self.batch / 64)


def variant_jobs(paths: dict[str, Path], results: Path) -> list[Job]:
    """All variants on the sets by which they were judged, and two of them on the others."""
    return [
        Job(method, *place, sets, tuple(paths[name] for name in sets), results)
        for group, sets in GROUPS.items()
        for place in PLACES[group]
        for method in (VARIANTS if group == "chosen" else REPORTED)
    ]


def _group_of(sets: tuple[str, ...]) -> str:
    return next(group for group, names in GROUPS.items() if names == sets)


def order(jobs: list[Job]) -> list[Job]:
    """Cheap and telling ones first, so that a part of the grid is a balanced part."""

    def key(job: Job) -> tuple[object, ...]:
        is_wide = job.width != "2x50"
        return is_wide, is_wide and job.steps * job.batch, job.method != "fisher8", job.steps

    return sorted(jobs, key=key)


def groups(width: str, sets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All sets at once for small networks, one after the other for large ones."""
    return [sets] if width == "2x50" else [(name,) for name in sets]
