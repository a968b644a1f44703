"""What the sinusoid experiment consists of: noise, settings, jobs and their cells. Free of JAX."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.machinery.baselines import choose

LOW, HIGH = 0.0, 12.0
POINTS = 1000
BATCH = 32
LEARNING_RATE = 1e-3
BALL = 0.5  # the radius of local variances

METHODS = choose(("fisher8_radius", "fisher8", "nll", "beta_nll"), head="log_variance")


class Setting(NamedTuple):
    """What the published description leaves open, or what is changed on purpose."""

    init: Literal["spread", "default"] = "spread"
    slope: float = 3.0
    momentum: float = 0.0
    decay: Literal["constant", "cosine"] = "constant"
    max_kl: float | None = None


# SGD at 1e-3 as published, in three settings. "best" places the first layer's units over the domain
# and adds momentum and a decay. "spread" changes the initialisation alone. "literal" has PyTorch's
# default initialisation, with which no method learns twelve periods.
SETTINGS = {
    "best": Setting(momentum=0.9, decay="cosine"),
    "spread": Setting(),
    "literal": Setting(init="default"),
}
MAX_KL = 0.3


def setting_of(name: str, method: str) -> Setting:
    """A named setting; methods with a radius get theirs."""
    return SETTINGS[name]._replace(max_kl=MAX_KL if method == "fisher8_radius" else None)


def true_mean(x: Any, numpy: Any = np) -> Any:
    """`0.4 sin(2 pi x)`; `numpy` may be `jax.numpy`."""
    return 0.4 * numpy.sin(2 * np.pi * x)


NOISES = {
    "constant": lambda x: np.full_like(x, 0.01),
    "linear": lambda x: 0.02 + 0.01 * x,
}


class Job(NamedTuple):
    """One method under one noise; all seeds train together."""

    noise: str
    method: str
    setting: str
    steps: int
    seeds: int
    chunk: int  # steps per compiled call, look and checkpoint
    results: Path
    runs: Path

    @property
    def chunks(self) -> int:
        """How often the training is looked at and saved."""
        return -(-self.steps // self.chunk)

    @property
    def cell(self) -> str:
        """The name of the result in the store."""
        length = "" if self.steps == 700_000 else f"-{self.steps}"
        return f"sinusoid/{self.setting}-{self.noise}-{self.method}{length}"

    @property
    def spec(self) -> dict[str, Any]:
        """What defines that result."""
        return {
            "noise": self.noise,
            "method": self.method,
            "setting": self.setting,
            **setting_of(self.setting, self.method)._asdict(),
            "learning_rate": LEARNING_RATE,
            "batch": BATCH,
            "points": POINTS,
            "steps": self.steps,
            "seeds": self.seeds,
            "chunk": self.chunk,
        }

    @property
    def command(self) -> str:
        """What computes it."""
        choice = f"--noises {self.noise} --methods {self.method} --setting {self.setting}"
        return f"python -m benchmarks sinusoid {choice} {self._size}"

    @property
    def _size(self) -> str:
        return f"--steps {self.steps} --seeds {self.seeds} --chunk {self.chunk}"
