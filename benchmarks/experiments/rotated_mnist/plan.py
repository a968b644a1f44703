"""What the rotated-digit table consists of: settings, presets, jobs and their names. Free of JAX.

A method's learning rate is that of the full length of 500 epochs. Shorter trainings of small rates
are *compressed in time*: the rate is multiplied by 500/epochs, so that the sum of the rates over
all steps stays the same. Rates that are already as large as training bears are kept.

The published schedule of Fisher8, a cosine from 5e-6, travels half as far as the published figures
need. A cosine from 1e-5 and a constant 5e-6 both travel that far; the cosine is the default, since
a compressed constant rate ends with large steps.
"""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machinery.baselines import BASELINES, Baseline, choose

FULL_EPOCHS = 500
BATCH = 512
SEEDS = (117, 189, 509, 832, 711)
PRIOR_GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
SCHEDULES = ("constant", "cosine")


class Setting(NamedTuple):
    """How a method is trained where nothing else is asked for."""

    method: Baseline
    learning_rate: float
    schedule: str = "constant"
    prior: float = 0.0  # lambda: the loss has + lambda |theta|^2 / (2 rows)
    has_grid: bool = False  # whether the full preset chooses lambda from the grid
    compressed: bool = False
    final: float = 1e-3  # the last rate of the cosine, relative to the first
    paper: str | None = None  # the row of the published table

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.method.label


# What is particular to a method. The radius is that of the full length; steps are proportional to
# its root. Temperature and bounds are in units of the scaled targets.
HYPERPARAMETERS: dict[str, dict[str, float]] = {
    "collier": {"temperature": 0.0},
    "trustable": {"step_size": 0.3, "mean_bound": 1.0, "scale_bound": 1.0},
    "fisher8_radius": {"max_kl": 3e-6},
    "nll_radius": {"max_kl": 3e-6},
    "natural_evidence": {"block": 256, "adam_steps": 50, "adam_rate": 0.1},
}


_BOUNDED = choose(("nll", "beta_nll", "beta_nll_1", "faithful"), head="bounded_softplus_variance")
_LINEAR = choose(("fisher8", "nll"), head="log_variance")
_RADIUS = {**HYPERPARAMETERS["fisher8_radius"], "radius_mode": "target"}


def _fisher8(label: str, **fields: Any) -> Baseline:
    return _LINEAR["fisher8"].override(label=label, **fields)


def _tuned(name: str, label: str) -> Baseline:
    return BASELINES[name].override(label=label, hyperparameters=HYPERPARAMETERS[name])


SETTINGS = {
    "natural_nll": Setting(BASELINES["natural_nll"], 0.1, "cosine", 100.0, True),
    # The published row: a precision for each parameter array, learned along the way.
    "natural_evidence": Setting(
        BASELINES["natural_nll"].override(label="Natural NLL, empirical Bayes"),
        0.1,
        "cosine",
        1.0,
        paper="natural_nll_kfac",
    ),
    # Not in the published table: what the loop of the next three does with beta of 0.
    "nll": Setting(_BOUNDED["nll"], 0.1, "constant", 100.0, True),
    "beta_nll": Setting(_BOUNDED["beta_nll"], 0.1, "constant", 100.0, True, paper="beta_nll_0.5"),
    "beta_nll_1": Setting(
        _BOUNDED["beta_nll_1"], 0.1, "constant", 100.0, True, paper="beta_nll_1.0"
    ),
    "faithful": Setting(_BOUNDED["faithful"], 0.1, "constant", 100.0, True, paper="faithful"),
    "collier": Setting(
        _tuned("collier", "Collier"), 1e-3, "cosine", 0.0, compressed=True, paper="collier"
    ),
    "trustable": Setting(
        _tuned("trustable", "Trustable"), 1e-2, "cosine", 0.0, compressed=True, paper="trustable"
    ),
    "fisher8_prior": Setting(
        _fisher8("Fisher8, lambda 0.1"), 1e-5, "cosine", 0.1, True, True, paper="fisher8_prior_0.1"
    ),
    "fisher8": Setting(
        _fisher8("Fisher8, lambda 0"), 1e-5, "cosine", compressed=True, paper="fisher8_prior_0"
    ),
    "fisher8_radius": Setting(
        _fisher8("Fisher8 + KL radius", **_RADIUS), 1.0, "cosine", compressed=True
    ),
    "nll_radius": Setting(
        _LINEAR["nll"].override(label="NLL + KL radius", **_RADIUS), 1.0, "cosine", compressed=True
    ),
    # No setting at all: `fisher8_optimizer(steps)`, and Adam as most people would start it.
    "fisher8_recipe": Setting(_fisher8("Fisher8, default optimizer"), 1.0),
    "nll_adam": Setting(_LINEAR["nll"].override(label="NLL, Adam"), 1e-3, "cosine"),
    # No setting either: `Method(NetworkNaturalGradient())`.
    "network_recipe": Setting(
        _LINEAR["nll"].override(label="Parameter-space natural gradient"), 1.0
    ),
    "untrained": Setting(_fisher8("Untrained network"), 0.0),
}


class Preset(NamedTuple):
    """How much of it is run."""

    epochs: int
    seeds: tuple[int, ...]
    uses_grid: bool


PRESETS = {
    "quick": Preset(5, SEEDS[:2], False),
    "full": Preset(FULL_EPOCHS, SEEDS, True),
}


class Job(NamedTuple):
    """One training of one method, with the choice of its prior if that is asked for."""

    images: str  # mnist or digits
    regime: str
    method: str
    seed: int
    epochs: int
    learning_rate: float
    schedule: str
    prior: float | None  # None: chosen from the grid
    data: Path | None
    results: Path
    scratch: Path

    @property
    def cell(self) -> str:
        """The name of the result in the store."""
        setting = SETTINGS[self.method]
        parts = [f"{self.epochs}ep", self.regime, self.method]
        if self.schedule != setting.schedule:
            parts.append(self.schedule)
        if self.learning_rate != setting.learning_rate:
            parts.append(f"rate{self.learning_rate:g}")
        if self.prior is None:
            parts.append("grid")
        elif self.prior != setting.prior:
            parts.append(f"prior{self.prior:g}")
        return f"rotated_mnist/{self.images}/{'-'.join(parts)}-seed{self.seed}"

    def grid_cell(self, prior: float) -> str:
        """The name of one trial of the grid."""
        return f"{self.cell}-trials/prior{prior:g}"

    @property
    def spec(self) -> dict[str, Any]:
        """What defines the result."""
        return {
            "images": self.images,
            "regime": self.regime,
            "method": self.method,
            "seed": self.seed,
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "rate_factor": self.rate_factor,
            "schedule": self.schedule,
            "prior": "grid" if self.prior is None else self.prior,
            **HYPERPARAMETERS.get(self.method, {}),
        }

    @property
    def command(self) -> str:
        """The shortest command that computes this result."""
        setting = SETTINGS[self.method]
        words = ["python -m benchmarks rotated_mnist", f"--images {self.images}"]
        words += [f"--methods {self.method} --regimes {self.regime} --seeds {self.seed}"]
        if self.prior is None:
            words.append("--preset full")
        elif self.prior != setting.prior:
            words.append(f"--prior {self.prior:g}")
        if self.epochs and (self.epochs != PRESETS["quick"].epochs or self.prior is None):
            words.append(f"--epochs {self.epochs}")
        if self.learning_rate != setting.learning_rate:
            words.append(f"--learning-rate {self.learning_rate:g}")
        if self.schedule != setting.schedule:
            words.append(f"--schedule {self.schedule}")
        return " ".join(words)

    @property
    def rate_factor(self) -> float:
        """What compression in time multiplies the learning rate by."""
        is_shorter = SETTINGS[self.method].compressed and self.epochs > 0
        return FULL_EPOCHS / self.epochs if is_shorter else 1.0

    @property
    def trainings(self) -> int:
        """How often the network is trained."""
        return 1 if self.prior is not None else 1 + len(PRIOR_GRID)
