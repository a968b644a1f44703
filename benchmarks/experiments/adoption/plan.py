"""What the adoption study consists of: programs, problems, methods, jobs. Free of JAX."""

import ast
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]

# Every method, and whether it has learning rates to choose from.
METHODS = {
    "nll": ("NLL, as it is", True),
    "beta_nll": ("beta-NLL 0.5", True),
    "fisher8": ("Fisher8, their optimizer", True),
    "fisher8_tenth": ("Fisher8, log-variance by 0.1", True),
    "radius": ("Fisher8, KL radius", False),
    "network": ("parameter-space natural gradient", False),
}
CAUSES = "causes"  # parts of the change alone; see `causes.py`
LOOKS = 10
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # wide enough that none is best at an end
CAUSE_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)


class Program(NamedTuple):
    """A program of other authors: what is installed, and how it is trained here."""

    package: str
    label: str
    problems: tuple[str, ...]
    steps: int
    network_steps: int | None = None
    """Of the natural gradient, where as many would take longer than all rates of the others."""
    seeds: int = 3
    pins: tuple[str, ...] = ()
    """Older versions that it needs, where its own metadata do not say so."""
    goes_on: str | None = None
    """The program whose chosen learning rates this one trains with, to use the networks further."""
    methods: tuple[str, ...] = (*METHODS, CAUSES)


PROGRAMS = {
    "bde": Program(
        "sklearn-contrib-bde",
        "deep ensemble of a Bayesian one",
        ("airfoil", "bike", "concrete"),
        steps=200,
        seeds=5,
    ),
    "rl_blox": Program(
        "rl-blox",
        "ensemble of dynamics models",
        ("pendulum",),
        steps=30 * 43,
        network_steps=200,
    ),
    "ramsey": Program(
        "ramsey",
        "conditional neural process",
        ("gaussian_process",),
        steps=1500,
        network_steps=200,
        pins=("flax<0.12", "jax<0.8"),
    ),
    "flowjax": Program(
        "flowjax",
        "conditional density of one affine layer",
        ("energy", "wine"),
        steps=500,
    ),
    "bayesflow": Program(
        "bayesflow",
        "amortised posterior",
        ("lotka_volterra",),
        steps=600,
    ),
    "bde_sampler": Program(
        "sklearn-contrib-bde",
        "its sampler after the ensemble",
        ("airfoil",),
        steps=200,
        goes_on="bde",
        methods=("nll", "fisher8"),
    ),
    "rl_blox_pets": Program(
        "rl-blox",
        "planning with the dynamics",
        ("pendulum",),
        steps=7 * 200,
        seeds=5,
        goes_on="rl_blox",
        methods=("nll", "fisher8", "fisher8_tenth"),
    ),
}


def requirements(program: Program) -> list[str]:
    """What is installed from the package registry: the program first, its own pins decide."""
    return [program.package, *program.pins, "flax", "chex", "optax"]


def changed_lines(name: str) -> int:
    """The lines of code in the file of a change: no docstring, comment or blank line."""
    path = FOLDER / "changes" / f"{PROGRAMS[name].goes_on or name}.py"
    lines: set[int] = set()
    for node in ast.parse(path.read_text()).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring:
            assert node.end_lineno is not None
            lines.update(range(node.lineno, node.end_lineno + 1))
    code = path.read_text().splitlines()
    texts = (code[number - 1].strip() for number in lines)
    return sum(bool(text) and not text.startswith("#") for text in texts)


class Job(NamedTuple):
    """One program on one problem by one method: all rates, all seeds."""

    program: str
    problem: str
    method: str
    steps: int
    seeds: int
    rates: tuple[float | None, ...]
    python: Path
    data: Path | None
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"adoption/{self.program}-{self.problem}-{self.method}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        names = ("program", "problem", "method", "steps", "seeds")
        return {**{name: getattr(self, name) for name in names}, "rates": list(self.rates)}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        names = f"--programs {self.program} --problems {self.problem} --methods {self.method}"
        return f"python -m benchmarks adoption {names}"
