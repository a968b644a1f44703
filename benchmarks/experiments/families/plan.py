"""What the recovery benchmark consists of: settings, the ladder of lengths, jobs, cells."""

from pathlib import Path
from typing import Any, NamedTuple

TOLERANCE = 0.02  # nats above the true parameters: what counts as recovered
LADDER = (10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400)
FIRST_CLIMB = 600  # every run up to here is made in any case
SEEDS = (0, 1, 2)
NUM_TRAIN, NUM_TEST, BATCH_SIZE, WIDTH = 65536, 4096, 512, 64
LEARNING_RATES = (3e-3, 1e-2, 3e-2)
# One setting for every family and every length: `fisher8_optimizer(num_steps, max_change=None,
# **SETTING)`. The bare default is asked in jobs of its own.
SETTING = {"momentum": 0.8, "second_moment": 0.99}


class Job(NamedTuple):
    """Both methods on one family."""

    family: str
    ladder: tuple[int, ...]
    seeds: tuple[int, ...]
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"families/recovery/{self.family.lower().replace(' ', '_')}"

    @property
    def spec(self) -> dict[str, Any]:
        """What determines a row, together with the code."""
        return {
            "family": self.family,
            "ladder": list(self.ladder),
            "seeds": list(self.seeds),
            "setting": SETTING,
            "learning_rates": LEARNING_RATES,
            "tolerance": TOLERANCE,
            "batch_size": BATCH_SIZE,
            "num_train": NUM_TRAIN,
        }

    @property
    def command(self) -> str:
        """What computes it."""
        ladder, seeds = (" ".join(map(str, values)) for values in (self.ladder, self.seeds))
        options = f"--ladder {ladder} --seeds {seeds}"
        return f"python -m benchmarks families --families '{self.family}' {options}"


# Presets with their defaults, with nothing but the number of steps.
RECIPES = {
    "bare": "fisher8_optimizer(num_steps)",
    "network": "network_gradient and network_optimizer(num_steps)",
}


class RecipeJob(NamedTuple):
    """A preset with its defaults on one family, up to the length that Adam needs."""

    family: str
    recipe: str
    results: Path

    @property
    def beside(self) -> str:
        """The cell with Adam's length."""
        return Job(self.family, LADDER, SEEDS, self.results).cell

    @property
    def cell(self) -> str:
        """The name in the store."""
        return self.beside.replace("recovery", self.recipe)

    @property
    def spec(self) -> dict[str, Any]:
        """What determines a row, together with the code."""
        return {
            "family": self.family,
            "setting": RECIPES[self.recipe],
            "ladder": f"up to Adam's planned length, at most {FIRST_CLIMB}",
            "seeds": list(SEEDS),
            "tolerance": TOLERANCE,
            "batch_size": BATCH_SIZE,
            "num_train": NUM_TRAIN,
        }

    @property
    def command(self) -> str:
        """What computes it."""
        return f"python -m benchmarks families --{self.recipe} --families '{self.family}'"
