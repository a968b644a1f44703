"""Which solver fits into a budget: operations and memory, counted from shapes alone."""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr

from fisher8_jax._internal.checks import check_count, check_number, check_positive
from fisher8_jax.curvature._problem import Problem
from fisher8_jax.curvature._solvers import Blocks, ConjugateGradients, Direct, Solver

# Operations of Gram matrices and factorisations run about twice as fast as those of small networks.
_RELATIVE_TIME = 0.55
_BLOCKS = 2.0  # steps: one forward-mode derivative, and loops over small systems
_SMALLEST_ROWS = 8
_SMALL_SYSTEM = 256  # unknowns that are solved for in a quarter of a millisecond
_ITERATED = 40.0  # steps that conjugate gradients are expected to cost


class Auto(NamedTuple):
    """Takes the most exact solver that fits into a budget.

    `Direct` for up to 256 unknowns, which cost next to nothing, and within the budget; else
    `Blocks` of as many examples as fit, else blocks of single elements' outputs. If nothing fits,
    the cheaper of the smallest blocks and `ConjugateGradients`. What was taken is
    `curvature.solver`, and `curvature.describe()` says it with its expected cost.

    Args:
        nll_steps: the cost of a step, in steps of plain NLL on the same batch.
        gigabytes: the largest intermediate results.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> from fisher8_jax.curvature import Auto
        >>> def predict_one(params, x):
        ...     return Gaussian(*(jnp.tanh(x @ params["hidden"]) @ params["head"]))
        >>> params = {"hidden": jnp.ones((8, 20)), "head": jnp.ones((20, 2))}
        >>> x = jnp.ones((256, 8))
        >>> for solver in (Auto(), Auto(nll_steps=200)):
        ...     print(network_curvature(predict_one, params, x, solver=solver).solver)
        Blocks(rows=32, outputs=None)
        Direct()
    """

    nll_steps: float = 10.0
    gigabytes: float = 1.0

    def choose(self, problem: Problem) -> Solver:
        """The solver for one batch."""
        sizes = _Sizes.of(problem)
        if sizes.devices * sizes.rows * sizes.outputs <= _SMALL_SYSTEM:
            return Direct()
        every = list(_candidates(problem, sizes))
        fitting = [s for s in every if sizes.gigabytes(s) <= self.gigabytes]
        for solver in fitting:
            if sizes.nll_steps(solver) <= self.nll_steps:
                return solver
        if fitting and sizes.nll_steps(fitting[-1]) < _ITERATED:
            return fitting[-1]
        return ConjugateGradients()


Choice = Solver | Auto | Literal["auto"]


def check_solver(solver: object) -> None:
    """Says which solvers there are."""
    if isinstance(solver, str) and solver == "auto":
        return
    if not isinstance(solver, Auto | Direct | Blocks | ConjugateGradients):
        raise TypeError(
            "`solver` must be 'auto', `Auto()`, `Direct()`, `Blocks(rows)` or "
            f"`ConjugateGradients()` of `fisher8_jax.curvature`, got {solver!r}."
        )
    if isinstance(solver, Auto):
        check_positive("Auto.nll_steps", solver.nll_steps)
        check_positive("Auto.gigabytes", solver.gigabytes)
    if isinstance(solver, Blocks):
        check_count("Blocks.rows", solver.rows)
        check_count("Blocks.outputs", 1 if solver.outputs is None else solver.outputs)
    if isinstance(solver, ConjugateGradients):
        check_count("ConjugateGradients.max_iterations", solver.max_iterations)
        check_number("ConjugateGradients.tolerance", solver.tolerance, at_least=0)
        check_count("ConjugateGradients.rank", solver.rank, at_least=0)


def choose_solver(problem: Problem, solver: Choice) -> Solver:
    """The solver itself, or the one that fits into the budget."""
    if isinstance(solver, str):
        solver = Auto()
    return solver.choose(problem) if isinstance(solver, Auto) else solver


def expected_steps(problem: Problem, solver: Solver) -> float | None:
    """What a step costs in steps of plain NLL, about; None where it depends on the numbers."""
    return None if isinstance(solver, ConjugateGradients) else _Sizes.of(problem).nll_steps(solver)


def _candidates(problem: Problem, sizes: "_Sizes") -> Iterator[Solver]:
    """From the most exact to the cheapest."""
    yield Direct()
    coordinates = problem.whitening.factor.shape[-1]
    smallest = min(_SMALLEST_ROWS, sizes.rows)
    for outputs in (None, coordinates) if coordinates < sizes.outputs else (None,):
        rows = sizes.rows if outputs else math.ceil(sizes.rows / 2)
        while rows >= smallest:
            yield Blocks(rows, outputs)
            rows = math.ceil(rows / 2) if rows > smallest else 0


class _Sizes(NamedTuple):
    """Rows of a device, outputs of a row, and counts of operations and numbers."""

    rows: int
    outputs: int
    devices: int
    nll: int  # operations of a plain step
    gram: int  # of all leaves' Gram matrices
    matrices: int  # numbers in them
    kept: int  # numbers in deltas and rows

    @classmethod
    def of(cls, problem: Problem) -> "_Sizes":
        rows, outputs = len(problem.inside), problem.whitening.outputs
        leaves = problem.plan.leaves
        widths = [math.prod(aval.shape) for use in problem.network.uses for aval in use.outputs]
        matrices = [leaf.floats for leaf in leaves if leaf.form == "pairs"]
        return cls(
            rows=rows,
            outputs=outputs,
            devices=1 if problem.axis_name is None else lax.axis_size(problem.axis_name),
            nll=max(3 * rows * forward_operations(problem.network.program.jaxpr), 1),
            gram=sum(leaf.operations for leaf in leaves),
            matrices=sum(matrices),
            kept=rows * outputs * sum(widths) + sum(x.floats for x in leaves) - sum(matrices),
        )

    def nll_steps(self, solver: Solver) -> float:
        part, system, number = self._blocks(solver)
        operations = part * self.gram + number * system**3 / 3
        own = 1 + (self.outputs - 1) / 3 + (_BLOCKS if isinstance(solver, Blocks) else 0)
        return own + _RELATIVE_TIME * operations / self.nll

    def gigabytes(self, solver: Solver) -> float:
        part, system, number = self._blocks(solver)
        return 4e-9 * (self.kept + part * self.matrices + number * system**2)

    def _blocks(self, solver: Solver) -> tuple[float, int, int]:
        """The part of the local Gram matrices, the unknowns of a system, and how many there are."""
        if not isinstance(solver, Blocks):
            return self.devices, self.devices * self.rows * self.outputs, 1
        rows, outputs = min(solver.rows, self.rows), solver.outputs or self.outputs
        number = math.ceil(self.rows / rows) * (self.outputs // outputs)
        return rows * outputs / (self.rows * self.outputs), rows * outputs, number


def forward_operations(jaxpr: Jaxpr) -> int:
    """Multiplications and additions of a program; one for every result of other operations."""
    return sum(_operations(equation) for equation in jaxpr.eqns)


def _operations(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    bodies = [b.jaxpr if isinstance(b, ClosedJaxpr) else b for b in _bodies(params.values())]
    if bodies:
        return params.get("length", 1) * max(forward_operations(body) for body in bodies)
    size = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
    if name == "dot_general":
        (summed, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * size * math.prod(shape[axis] for axis in summed)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return 2 * size * math.prod(kernel) // kernel[params["dimension_numbers"].rhs_spec[0]]
    return size


def _bodies(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            yield value
        elif isinstance(value, tuple | list):
            yield from _bodies(value)
