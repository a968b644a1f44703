"""Ways to solve `(K / n + damping) z = u` in the whitened outputs of a batch of `n` elements.

A solver is a small hashable value, part of the program and not of its data. `prepare` computes
what depends on the network, `solve` uses it for a right-hand side. Both see arrays of shape
`(outputs, rows)`: an example is a row, and a row has as many outputs as its distribution has
coordinates.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.curvature._gram import gram_matrix
from fisher8_jax.curvature._linear_algebra import solve_damped
from fisher8_jax.curvature._problem import Problem

_EXACT = lax.Precision.HIGHEST


_Iteration = tuple[Array, Array, Array, Array, Array, Array]


class Prepared(NamedTuple):
    """What a solver keeps: its own state, the damping, and the number of elements."""

    state: Any
    damping: Array
    elements: Array


class Solver(Protocol):
    """One way to solve."""

    @property
    def knows_movement(self) -> bool:
        """Whether `movement` is that of the whole step."""

    @property
    def needs_deltas(self) -> bool:
        """Whether `prepare` computes the deltas, from which the gradient then follows cheaply."""

    def prepare(self, problem: Problem) -> Prepared:
        """What has to be kept for `solve`."""

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Array:
        """`z` for the right-hand side `u`, both of shape `(outputs, rows)`."""

    def movement(self, prepared: Prepared, solution: Array, axis_name: AxisName | None) -> Array:
        """How far the step moves the whitened outputs, `K z`."""

    def describe(self) -> str:
        """One line for `NetworkCurvature.describe`."""


class Direct(NamedTuple):
    """Forms the Gram matrix of all outputs of the batch and factorises it.

    Exact. Costs `(outputs rows)^3 / 3` operations and a matrix of `(outputs rows)^2` numbers. Under
    `axis_name` every device computes its rows of the matrix and solves the whole system.

    Example:
        >>> from fisher8_jax.curvature import Direct
        >>> Direct()
        Direct()
    """

    def prepare(self, problem: Problem) -> Prepared:
        def gather(x: Array, axis: int) -> Array:
            return _gather(x, axis, problem.axis_name)

        local = gram_matrix(problem, problem.forward.operands, problem.deltas(), gather)
        blocks = gather(local, 1)
        size = blocks.shape[0] * blocks.shape[1]
        matrix = lax.optimization_barrier(blocks.reshape(size, size) / problem.elements)
        return Prepared(matrix, problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Array:
        everywhere = _gather(right, 1, axis_name)
        solution = solve_damped(prepared.state, prepared.damping, everywhere.reshape(-1))
        return _local(solution.reshape(everywhere.shape), right.shape[1], axis_name)

    @property
    def knows_movement(self) -> bool:
        return True

    @property
    def needs_deltas(self) -> bool:
        return True

    def movement(self, prepared: Prepared, solution: Array, axis_name: AxisName | None) -> Array:
        everywhere = _gather(solution, 1, axis_name)
        product = jnp.matmul(prepared.state, everywhere.reshape(-1), precision=_EXACT)
        moved = (prepared.elements * product).reshape(everywhere.shape)
        return _local(moved, solution.shape[1], axis_name)

    def describe(self) -> str:
        return "direct: one Cholesky factorisation of the whole batch"


class Blocks(NamedTuple):
    """Solves independent systems of `rows` examples each and averages their steps.

    Keeps part of the gain at a fraction of the cost, and needs no communication: under `axis_name`
    every device solves for its own examples. With all examples in one block it is `Direct`.

    Args:
        rows: examples in a block; the last block may be smaller.

    Example:
        >>> from fisher8_jax.curvature import Blocks
        >>> Blocks(rows=32)
        Blocks(rows=32)
    """

    rows: int

    def prepare(self, problem: Problem) -> Prepared:
        split = functools.partial(_split, self.rows)
        # Padding repeats the last operand, since an equation may not be finite at 0.
        operands = jax.tree.map(lambda x: split(x, 0, "edge"), problem.forward.operands)
        deltas = jax.tree.map(lambda x: split(x, 1, "constant"), problem.deltas())
        gram = functools.partial(gram_matrix, problem, gather=lambda x, axis: x)
        blocks = jax.vmap(gram)(operands, deltas)
        size = blocks.shape[1] * blocks.shape[2]
        # Each block is a batch of its own, with its own number of elements.
        elements = jnp.maximum(jnp.sum(split(problem.counts, 0, "constant"), 1), 1)
        matrices = blocks.reshape(-1, size, size) / elements[:, None, None]
        return Prepared(matrices, problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Array:
        flat = _split(self.rows, right, 1, "constant")
        solve = jax.vmap(solve_damped, (0, None, 0))
        solution = solve(prepared.state, prepared.damping, flat.reshape(flat.shape[0], -1))
        rows = jnp.moveaxis(solution.reshape(flat.shape), 0, 1)
        return rows.reshape(right.shape[0], -1)[:, : right.shape[1]]

    @property
    def knows_movement(self) -> bool:
        return False  # blocks do not see what others do to their examples

    @property
    def needs_deltas(self) -> bool:
        return True

    def movement(self, prepared: Prepared, solution: Array, axis_name: AxisName | None) -> Array:
        raise NotImplementedError("Blocks do not know how far the whole step moves the outputs.")

    def describe(self) -> str:
        return f"blocks: independent factorisations of {self.rows} rows each"


class ConjugateGradients(NamedTuple):
    """Solves without any matrix: one forward- and one reverse-mode derivative an iteration.

    For dense outputs and very large batches, where `(outputs rows)^2` numbers are too many. The
    solution is approximate: iterations end at `max_iterations`, or as soon as the residual is
    `tolerance` times the right-hand side.

    Args:
        max_iterations: the largest number of iterations.
        tolerance: the relative residual to stop at.

    Example:
        >>> from fisher8_jax.curvature import ConjugateGradients
        >>> ConjugateGradients(max_iterations=10)
        ConjugateGradients(max_iterations=10, tolerance=0.001)
    """

    max_iterations: int = 20
    tolerance: float = 1e-3

    def prepare(self, problem: Problem) -> Prepared:
        return Prepared(problem.linearize(), problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Array:
        def multiply(z: Array) -> Array:
            product = prepared.state.gram_product(z, axis_name)
            return product / prepared.elements + prepared.damping * z

        def dot(a: Array, b: Array) -> Array:
            product = jnp.vdot(a, b, precision=_EXACT)
            return product if axis_name is None else lax.psum(product, axis_name)

        # At unit size, because the squares of what extreme variances make overflow.
        size = jnp.max(jnp.abs(right))
        if axis_name is not None:
            size = lax.pmax(size, axis_name)
        size = jnp.where(size == 0, 1, size)
        limits = self.max_iterations, self.tolerance
        return size * _conjugate_gradients(multiply, dot, right / size, *limits)

    @property
    def knows_movement(self) -> bool:
        return True

    @property
    def needs_deltas(self) -> bool:
        return False

    def movement(self, prepared: Prepared, solution: Array, axis_name: AxisName | None) -> Array:
        return prepared.state.gram_product(solution, axis_name)

    def describe(self) -> str:
        return (
            f"conjugate gradients: at most {self.max_iterations} iterations of one forward- and "
            "one reverse-mode derivative, no matrix"
        )


# Beyond a matrix of 64 MB, or intermediate results of 1 GB, both in float32.
_LARGEST_SYSTEM = 4096
_LARGEST_LEAF = 2**28


def choose_solver(problem: Problem) -> Solver:
    """The direct solver where its matrices fit, conjugate gradients elsewhere."""
    rows = problem.counts.shape[0]
    if problem.axis_name is not None:
        rows *= lax.axis_size(problem.axis_name)
    floats = max((leaf.floats for leaf in problem.plan.leaves), default=0)
    is_small = rows * problem.whitening.outputs <= _LARGEST_SYSTEM and floats <= _LARGEST_LEAF
    return Direct() if is_small else ConjugateGradients()


def _conjugate_gradients(
    multiply: Callable[[Array], Array],
    dot: Callable[[Array, Array], Array],
    right: Array,
    max_iterations: int,
    tolerance: float,
) -> Array:
    """The textbook iteration; ends where rounding leaves nothing to be gained.

    That is where the curvature along a direction is lost in the rounding of the largest one seen:
    a step along it would be of arbitrary length.
    """
    target = tolerance**2 * dot(right, right)
    smallest = float(jnp.finfo(right.dtype).eps)

    def is_unfinished(carry: _Iteration) -> Array:
        squared, _, count = carry[3:]
        return (squared > target) & (count < max_iterations)

    def iterate(carry: _Iteration) -> _Iteration:
        solution, residual, direction, squared, largest, count = carry
        image = multiply(direction)
        curved, size = dot(direction, image), dot(direction, direction)
        curvature = curved / jnp.where(size > 0, size, 1)
        largest = jnp.maximum(largest, curvature)
        is_sound = (curvature > smallest * largest) & (curved > 0)
        length = squared / jnp.where(is_sound, curved, 1)
        residual = residual - length * image
        new = dot(residual, residual)
        next_direction = residual + new / squared * direction
        is_sound &= jnp.isfinite(new)
        solution = jnp.where(is_sound, solution + length * direction, solution)
        left = jnp.where(is_sound, new, 0)
        return solution, residual, next_direction, left, largest, count + 1

    squared = dot(right, right)
    zeros, count = jnp.zeros_like(right), jnp.zeros((), jnp.int32)
    start = (zeros, right, right, squared, jnp.zeros_like(squared), count)
    return lax.while_loop(is_unfinished, iterate, start)[0]


def _split(rows: int, x: Array, axis: int, mode: str) -> Array:
    """Blocks of `rows` along `axis`, stacked along a new first axis and padded to full length."""
    blocks = math.ceil(x.shape[axis] / rows)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, blocks * rows - x.shape[axis])
    padded = jnp.pad(x, widths, mode=mode)
    shape = (*x.shape[:axis], blocks, rows, *x.shape[axis + 1 :])
    return jnp.moveaxis(padded.reshape(shape), axis, 0)


def _local(x: Array, rows: int, axis_name: AxisName | None) -> Array:
    """The part of `x`, along its second axis, that belongs to this place along `axis_name`."""
    if axis_name is None:
        return x
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axis_name) * rows, rows, 1)


def _gather(x: Array, axis: int, axis_name: AxisName | None) -> Array:
    """`x` of all places along `axis_name`, laid end to end along `axis`."""
    return x if axis_name is None else lax.all_gather(x, axis_name, axis=axis, tiled=True)
