"""What the sweeps consist of: methods, their settings, sets, jobs. Free of JAX."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.machinery.baselines import BASELINES, TEMPERATURES, Baseline
from benchmarks.machinery.jobs import ChosenJob

SETS = ("yacht", "boston", "energy", "concrete")
STEPS, BATCH = 1000, 32
RATES = (0.001, 0.01)
HELD_OUT = 0.2  # of the training rows: they choose setting and rate, and fit post-hoc variances

# Weights of the data against the penalties lie on the line `rho = 1 - gamma`.
GAMMAS = (1e-3, 1e-2, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
STEP_SIZES, BOUNDS = (0.1, 0.3, 1.0), ((0.1, 0.01), (1.0, 1.0))
# Of the hidden layers; with several the variances are averaged.
LAYERS = {"first layer": (0,), "second layer": (1,), "both layers": (0, 1)}

Settings = dict[str, Baseline]


def _collier() -> Settings:
    """At a temperature the loss with many draws is the NLL with the noise added."""
    row = BASELINES["collier"].override(loss="nll")
    return {
        f"temperature {t:g}": row.override(head=f"latent_{t:g}" if t else "latent")
        for t in TEMPERATURES
    }


def _trustable() -> Settings:
    return {
        f"step {step:g}, bounds {mean:g} and {scale:g}": BASELINES["trustable"].override(
            hyperparameters={"step_size": step, "mean_bound": mean, "scale_bound": scale}
        )
        for step, (mean, scale) in itertools.product(STEP_SIZES, BOUNDS)
    }


def _wong_toi() -> Settings:
    row = Baseline("Wong-Toi", "wong_toi", "log_variance")
    return {
        f"gamma {gamma:g}": row.override(hyperparameters={"rho": 1 - gamma, "gamma": gamma})
        for gamma in GAMMAS
    }


# Titles and settings by method; those with one setting set the scale.
METHODS: dict[str, tuple[str, Settings]] = {
    "nll": ("NLL", {"": BASELINES["nll"]}),
    "beta_nll": (
        "beta-NLL",
        {"beta 0.5": BASELINES["beta_nll"], "beta 1": BASELINES["beta_nll_1"]},
    ),
    "faithful": ("Faithful", {"": BASELINES["faithful"]}),
    "fisher8": ("Fisher8", {"": BASELINES["fisher8"]}),
    "collier": ("Collier", _collier()),
    "trustable": ("Trustable", _trustable()),
    "wong_toi": ("Wong-Toi", _wong_toi()),
    "posthoc": ("post-hoc variance", dict.fromkeys(LAYERS, BASELINES["unit_variance"])),
}


@dataclasses.dataclass(frozen=True)
class Job(ChosenJob):
    """All settings, rates and splits of one method on one set."""

    experiment = "sweeps"
    options: ClassVar[dict[str, str]] = {"method": "methods", "dataset": "datasets"}

    method: str
    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates, trained together."""
        return RATES

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"sweeps/{self.dataset}-{self.method}"

    @property
    def settings(self) -> Settings:
        """By their names."""
        return METHODS[self.method][1]

    @property
    def spec(self) -> dict[str, Any]:
        """What defines the cell."""
        return {**super().spec, "settings": list(self.settings), "rates": RATES, "steps": STEPS}
