"""What the study of the forecaster consists of. Free of JAX."""

from pathlib import Path
from typing import NamedTuple

RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
SEEDS, STEPS, BATCH, SERIES, LOOKS = 3, 300, 32, 256, 10

# How far the logarithm of the noise goes up and down with the clock, which the network is given.
NOISES = {"changing": 1.5, "equal": 0.0}


class Method(NamedTuple):
    """One way to train.

    Args:
        label: its name in tables.
        loss: "nll", "beta_nll", "fisher8" or "natural", which is Fisher8 without its norms.
        pull: a factor of the log-variance's part of the gradient.
        is_shared: one network for both outputs, otherwise one for each.
        has_rate: Adam with a decay to 0, otherwise the KL radius.
    """

    label: str
    loss: str
    pull: float = 1.0
    is_shared: bool = True
    has_rate: bool = True


METHODS = {
    "nll": Method("plain NLL", "nll"),
    "beta_nll": Method("beta-NLL 0.5", "beta_nll"),
    "fisher8": Method("Fisher8", "fisher8"),
    "fisher8_tenth": Method("Fisher8, log-variance by 0.1", "fisher8", pull=0.1),
    "natural": Method("Fisher8 without norms", "natural"),
    "nll_apart": Method("plain NLL, a network for each output", "nll", is_shared=False),
    "fisher8_apart": Method("Fisher8, a network for each output", "fisher8", is_shared=False),
    "radius": Method("Fisher8, KL radius", "fisher8", has_rate=False),
    "radius_tenth": Method(
        "Fisher8, log-variance by 0.1, KL radius", "fisher8", pull=0.1, has_rate=False
    ),
    "nll_radius": Method("plain NLL, KL radius", "nll", has_rate=False),
}
DRAWN = ("nll", "beta_nll", "fisher8", "fisher8_tenth", "radius", "nll_radius")


class Network(NamedTuple):
    """A network of the program and what is computed of it."""

    label: str
    rates: tuple[float, ...] = RATES
    noises: tuple[str, ...] = tuple(NOISES)
    methods: tuple[str, ...] = tuple(METHODS)


NETWORKS = {
    "Recurrent": Network("GRU"),
    # Eight times the time of a step: without the methods that look for causes.
    "Transformer": Network("transformer", RATES[1:5], ("changing",), DRAWN),
}


class Job(NamedTuple):
    """All methods, rates and seeds of one network on series of one kind."""

    network: str
    noise: str
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"forecaster/{self.network}-{self.noise}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {
            "network": self.network,
            "noise": NOISES[self.noise],
            "methods": {name: list(METHODS[name][1:]) for name in NETWORKS[self.network].methods},
            "rates": NETWORKS[self.network].rates,
            "seeds": SEEDS,
            "steps": STEPS,
            "batch": BATCH,
            "series": SERIES,
            "looks": LOOKS,
        }

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        names = f"--networks {self.network} --noises {self.noise}"
        return f"python -m benchmarks forecaster {names}"
