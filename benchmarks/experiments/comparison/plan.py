"""What the comparison consists of: problems, methods, jobs, cells. Free of JAX.

    costs    processor time of a step of every method on one problem, all in turn
    runs     the same processor time for every method on a sinusoid and on rotated digits
    scene    the same for a prediction at every pixel of a stereo pair, three methods
    angles   the directions of all methods at the same place, along one training

The third problem, UCI tables, has its runs in the benchmark `curvature`. A tenth of the training
rows chooses between three learning rates; the training with the chosen one is what is scored.
"""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.experiments.curvature.plan import METHODS as TIMED
from benchmarks.experiments.curvature.plan import Method, max_kl

LOOKS = 10
HELD_OUT = 0.1
RATES = {
    "adam_nll": (0.001, 0.003, 0.01),
    "adam_fisher8": (0.001, 0.003, 0.01),
    "sgd_fisher8": (0.003, 0.01, 0.03),
    "muon_fisher8": (0.003, 0.01, 0.03),
    "kfac": (0.01, 0.1, 1.0),  # the damping
}
# One setting of the natural gradient each.
METHODS: dict[str, Method] = {name: TIMED[name] for name in TIMED if name != "network_chosen"}

LABELS = {name: method.label for name, method in METHODS.items()} | {
    "kfac": "K-FAC (kfac-jax)",
}


class Setting(NamedTuple):
    """What is particular to a problem."""

    adam_steps: int  # the budget: the processor time of so many steps of Adam on the NLL
    batch: int
    seeds: int
    damping: float
    cost_steps: int  # in one timed call
    angle_steps: int
    angle_rate: float
    cap: float | None = None  # the natural gradient's radius in the mode 'cap'; None: the preset's


PROBLEMS = {
    "sinusoid": Setting(8400, 100, 2, 0.01, 40, 1000, 0.003, 0.1),
    "digits": Setting(150, 128, 1, 0.3, 2, 60, 0.001),
}
COST_ROUNDS = 7
TABLE = "energy"  # the UCI set whose angles are measured
ANGLE_SETTINGS = PROBLEMS | {TABLE: Setting(320, 32, 5, 0.3, 0, 320, 0.01)}
DIRECTIONS = ("NLL", "Fisher8", "Adam", "Muon", "natural gradient")


class CostJob(NamedTuple):
    """The time of a step of every method on one problem."""

    problem: str
    data: Path | None
    results: Path

    @property
    def cell(self) -> str:
        return f"comparison/costs-{self.problem}"

    @property
    def spec(self) -> dict[str, Any]:
        setting = PROBLEMS[self.problem]
        spec: dict[str, Any] = {"problem": self.problem, "batch": setting.batch}
        return spec | {"methods": list(METHODS), "rounds": COST_ROUNDS}

    @property
    def command(self) -> str:
        return f"python -m benchmarks comparison --problems {self.problem}"


class RunJob(NamedTuple):
    """One method on one problem, all seeds and rates."""

    problem: str
    method: str
    steps: int
    seconds: float  # processor time of a step of one seed
    data: Path | None
    results: Path

    @property
    def rates(self) -> tuple[float, ...]:
        return RATES.get(self.method, (1.0,))

    @property
    def cell(self) -> str:
        return f"comparison/{self.problem}-{self.method}"

    @property
    def spec(self) -> dict[str, Any]:
        setting = PROBLEMS[self.problem]
        spec: dict[str, Any] = {"problem": self.problem, "method": self.method, "steps": self.steps}
        spec |= {"batch": setting.batch, "seeds": setting.seeds, "rates": self.rates}
        if self.method == "network":
            radius = setting.cap or max_kl(self.steps)
            spec |= {"damping": setting.damping, "max_kl": radius}
        return spec

    @property
    def command(self) -> str:
        return f"python -m benchmarks comparison --problems {self.problem} --methods {self.method}"


class AngleJob(NamedTuple):
    """The directions along a training by Adam on Fisher8 gradients."""

    problem: str
    data: Path | None
    results: Path
    table: Path | None = None  # the prepared UCI set

    @property
    def cell(self) -> str:
        return f"comparison/angles-{self.problem}"

    @property
    def spec(self) -> dict[str, Any]:
        setting = ANGLE_SETTINGS[self.problem]
        spec: dict[str, Any] = {"problem": self.problem, "steps": setting.angle_steps}
        spec |= {"rate": setting.angle_rate, "batch": setting.batch, "seeds": setting.seeds}
        return spec | {"damping": setting.damping, "directions": list(DIRECTIONS), "looks": LOOKS}

    @property
    def command(self) -> str:
        return f"python -m benchmarks comparison --problems {self.problem}"


class Scene(NamedTuple):
    """How the stereo pair is trained."""

    adam_steps: int = 150
    seed: int = 0
    width: int = 8
    damping: float = 0.3
    iterations: int = 10  # of conjugate gradients


SCENE = Scene()


class SceneJob(NamedTuple):
    """Three methods on the stereo pair."""

    results: Path

    @property
    def cell(self) -> str:
        return "comparison/scene"

    @property
    def spec(self) -> dict[str, Any]:
        return {"problem": "scene", **SCENE._asdict()}

    @property
    def command(self) -> str:
        return "python -m benchmarks comparison --problems scene"
