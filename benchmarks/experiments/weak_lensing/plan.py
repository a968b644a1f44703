"""What the weak-lensing table consists of: settings, presets, jobs and their names. Free of JAX."""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.experiments.weak_lensing.simulator import Simulation
from benchmarks.machinery.baselines import BASELINES, choose

SEEDS = (0, 1, 2, 3, 4)
METHODS = {
    "nll": BASELINES["nll"].override(head="log_std"),
    **choose(("beta_nll", "faithful"), head="bounded_softplus_variance"),
    **choose(("fisher8", "fisher8_radius"), head="log_variance"),
}
PUBLISHED = tuple(METHODS)[:4]
LABELS = {name: method.label for name, method in METHODS.items()}


class Budget(NamedTuple):
    """How long and how fast a network is trained."""

    epochs: int
    batch: int
    learning_rate: float
    rate_patience: int  # epochs without a better score before the rate is halved
    stop_patience: int  # and before the training ends
    min_rate: float = 1e-7
    factor: float = 0.5


class Preset(NamedTuple):
    """Maps, noise, length and network."""

    simulation: Simulation
    galaxies: float  # per square arcminute
    budget: Budget
    seeds: tuple[int, ...]
    channels: tuple[int, ...] = (16, 32, 64, 128)
    dense: tuple[int, ...] = (512, 128)


PRESETS = {
    # More galaxies make up for a small part of the area, a larger rate for a small part of the
    # steps.
    "quick": Preset(
        Simulation(64, 32, 64, 30),
        1000.0,
        Budget(20, 32, 1e-2, 2, 10),
        SEEDS[:3],
    ),
    "full": Preset(Simulation(1424, 176, 101, 256), 30.0, Budget(100, 32, 1e-3, 12, 40), SEEDS),
}


class Job(NamedTuple):
    """One training of one method."""

    maps: str  # simulated or challenge
    method: str
    seed: int
    galaxies: float
    budget: Budget
    channels: tuple[int, ...]
    dense: tuple[int, ...]
    folder: Path
    size: str  # height x width x cosmologies x realisations
    results: Path
    scratch: Path

    @property
    def cell(self) -> str:
        """The name of the result in the store."""
        return f"weak_lensing/{self.maps}-{self.size}/{self.method}-seed{self.seed}"

    @property
    def command(self) -> str:
        """The shortest command that computes this result."""
        words = ["python -m benchmarks weak_lensing", f"--maps {self.maps}"]
        words += [f"--methods {self.method} --seeds {self.seed}"]
        for name, preset in PRESETS.items():
            if preset.budget == self.budget and preset.simulation.name == self.size:
                return " ".join([*words, f"--preset {name}"])
        shape = self.size.split("-")[0].split("x")
        words += [f"--size {' '.join(shape)}"] if self.maps == "simulated" else []
        words += [
            f"--epochs {self.budget.epochs}",
            f"--learning-rate {self.budget.learning_rate:g}",
        ]
        return " ".join(words)

    @property
    def spec(self) -> dict[str, Any]:
        """What defines the result."""
        return {
            "maps": self.maps,
            "size": self.size,
            "galaxies": self.galaxies,
            "method": self.method,
            "seed": self.seed,
            "channels": list(self.channels),
            "dense": list(self.dense),
            **self.budget._asdict(),
        }
