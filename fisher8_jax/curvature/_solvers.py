"""Ways to solve `(K / n + damping) z = u` in the whitened outputs of a batch of `n` elements.

A solver is a small hashable value, part of the program and not of its data. `prepare` computes
what depends on the network, `solve` uses it for a right-hand side. Both see arrays of shape
`(outputs, rows)`: an example is a row, and a row has as many outputs as its distribution has
coordinates.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.lax import linalg

from fisher8_jax._internal.batching import one_matrix_at_a_time
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.curvature._conjugate_gradients import Iteration, conjugate_gradients, nystroem
from fisher8_jax.curvature._gram import LeafRows, Rows, gram_matrix
from fisher8_jax.curvature._problem import Problem

_EXACT = lax.Precision.HIGHEST
_MARGIN = 3.0  # singular Gram matrices of up to 512 rows failed at 0.5 and below, none at 1


class Prepared(NamedTuple):
    """What a solver keeps: its own state, the damping, and the number of elements."""

    state: Any
    damping: Array
    elements: Array


class Solved(NamedTuple):
    """The solution `z`, and how far it moves the whitened outputs: `K z`, None with blocks."""

    whitened: Array
    movement: Array | None = None


class Solver(Protocol):
    """One way to solve."""

    knows_movement: ClassVar[bool]
    """Whether `solve` returns the movement of the whole step."""
    needs_deltas: ClassVar[bool]
    """Whether `prepare` computes the deltas, from which the gradient then follows cheaply."""

    def prepare(self, problem: Problem, rows: Rows) -> Prepared:
        """What has to be kept for `solve`; `rows` are empty unless it `needs_deltas`."""

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Solved:
        """`z` for the right-hand side `u`, both of shape `(outputs, rows)`."""

    def describe(self) -> str:
        """One line for `NetworkCurvature.describe`."""


@dataclasses.dataclass(frozen=True)
class Direct:
    """Forms the Gram matrix of all outputs of the batch and factorises it.

    Exact. Costs `(outputs rows)^3 / 3` operations and a matrix of `(outputs rows)^2` numbers. Under
    `axis_name` every device computes its rows of the matrix and solves the whole system.

    Example:
        >>> from fisher8_jax.curvature import Direct
        >>> Direct()
        Direct()
    """

    knows_movement: ClassVar[bool] = True
    needs_deltas: ClassVar[bool] = True

    def prepare(self, problem: Problem, rows: Rows) -> Prepared:
        def gather(x: Array, axis: int) -> Array:
            return _gather(x, axis, problem.axis_name)

        local = gram_matrix(rows, gather)
        blocks = gather(local, 1)
        size = blocks.shape[0] * blocks.shape[1]
        matrix = blocks.reshape(size, size) / problem.elements
        return Prepared(matrix, problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Solved:
        everywhere = _gather(right, 1, axis_name)
        solved = solve_damped(prepared.state, prepared.damping, everywhere.reshape(-1))
        parts = (x.reshape(everywhere.shape) for x in solved)
        whitened, moved = (_local(x, right.shape[1], axis_name) for x in parts)
        return Solved(whitened, prepared.elements * moved)

    def describe(self) -> str:
        return "direct: one Cholesky factorisation of the whole batch"


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Solves independent systems of `rows` examples each and averages their steps.

    Keeps part of the gain at a fraction of the cost, and needs no communication: under `axis_name`
    every device solves for its own examples. With everything in one block it is `Direct`.

    Args:
        rows: examples in a block; the last block may be smaller.
        outputs: how many outputs of a row a block has, a divisor of them all and a multiple of the
            coordinates of an element's distribution (2 for a Gaussian); None for all of them.

    Example:
        >>> from fisher8_jax.curvature import Blocks
        >>> Blocks(rows=32)
        Blocks(rows=32, outputs=None)
    """

    rows: int
    outputs: int | None = None

    knows_movement: ClassVar[bool] = False  # blocks do not see what others do to their examples
    needs_deltas: ClassVar[bool] = True

    def prepare(self, problem: Problem, rows: Rows) -> Prepared:
        outputs, coordinates = problem.whitening.outputs, problem.whitening.factor.shape[-1]
        width = self.outputs or outputs
        if outputs % width or width % coordinates:
            raise ValueError(
                f"`Blocks.outputs` must divide the {outputs} outputs of a row and be a multiple of "
                f"the {coordinates} coordinates of an element, got {width}."
            )
        groups = outputs // width
        parts = {leaf: row.map(functools.partial(_split, self.rows)) for leaf, row in rows.items()}
        activations = {leaf: part.activation for leaf, part in parts.items()}
        deltas = {leaf: _in_groups(part.delta, groups) for leaf, part in parts.items()}

        def gram(activations: dict[int, Array | None], deltas: dict[int, Array]) -> Array:
            return gram_matrix({leaf: LeafRows(activations[leaf], deltas[leaf]) for leaf in deltas})

        blocks = jax.vmap(jax.vmap(gram, (None, 0)))(activations, deltas)
        size = blocks.shape[2] * blocks.shape[3]
        # Each block is a batch of its own, with its own number of elements.
        inside = problem.inside.reshape(len(problem.inside), groups, -1).sum(-1)
        elements = jnp.maximum(jnp.sum(_split(self.rows, inside, 0), 1), 1).reshape(-1)
        matrices = blocks.reshape(-1, size, size) / elements[:, None, None]
        return Prepared(matrices, problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Solved:
        split = _split(self.rows, right, 1)
        blocks = _in_groups(split, right.shape[0] // (self.outputs or right.shape[0]))
        solve = jax.vmap(solve_damped, (0, None, 0))
        flat = blocks.reshape(len(prepared.state), -1)
        solution = solve(prepared.state, prepared.damping, flat)[0].reshape(split.shape)
        whitened = jnp.moveaxis(solution, 0, 1).reshape(right.shape[0], -1)
        return Solved(whitened[:, : right.shape[1]])

    def describe(self) -> str:
        outputs = "" if self.outputs is None else f" and {self.outputs} outputs"
        return f"blocks: independent factorisations of {self.rows} rows{outputs} each"


@dataclasses.dataclass(frozen=True)
class ConjugateGradients:
    """Solves without any matrix: one forward- and one reverse-mode derivative an iteration.

    For dense outputs and very large batches, where `(outputs rows)^2` numbers are too many. The
    solution is approximate: iterations end as soon as the residual is `tolerance` times the
    right-hand side, which is about the relative error of the gradient. What was reached is the
    `residual` of `network_gradient`.

    The first iterations are plain. Where they do not suffice, as with small predicted variances,
    `rank` products with random vectors make a preconditioner that takes out the largest
    eigenvalues, and up to `max_iterations` follow.

    Args:
        max_iterations: the largest number of iterations with the preconditioner.
        tolerance: the relative residual to stop at.
        rank: how many eigenvalues the preconditioner takes out; 0 for no preconditioner.

    Example:
        >>> from fisher8_jax.curvature import ConjugateGradients
        >>> ConjugateGradients(tolerance=1e-3)
        ConjugateGradients(max_iterations=100, tolerance=0.001, rank=64)
    """

    max_iterations: int = 100
    tolerance: float = 0.003
    rank: int = 64

    knows_movement: ClassVar[bool] = True
    needs_deltas: ClassVar[bool] = False

    def prepare(self, problem: Problem, rows: Rows) -> Prepared:
        return Prepared(problem.jacobian, problem.damping, problem.elements)

    def solve(self, prepared: Prepared, right: Array, axis_name: AxisName | None) -> Solved:
        def gram(z: Array) -> Array:
            return prepared.state.gram_product(z, axis_name) / prepared.elements

        def multiply(z: Array) -> Array:
            return gram(z) + prepared.damping * z

        def dot(a: Array, b: Array) -> Array:
            product = jnp.vdot(a, b, precision=_EXACT)
            return product if axis_name is None else lax.psum(product, axis_name)

        def solved(solution: Array) -> Solved:
            whitened = size * solution
            return Solved(whitened, prepared.state.gram_product(whitened, axis_name))

        # At unit size, because the squares of what extreme variances make overflow.
        size = jnp.max(jnp.abs(right))
        if axis_name is not None:
            size = lax.pmax(size, axis_name)
        size = jnp.where(size == 0, 1, size)
        scaled = right / size
        target = self.tolerance**2 * dot(scaled, scaled)
        plain = self.max_iterations if self.rank == 0 else _PLAIN_ITERATIONS
        found = conjugate_gradients(
            multiply, lambda x: x, dot, jnp.zeros_like(scaled), scaled,
            target=target, max_iterations=plain,
        )  # fmt: skip
        if self.rank == 0:
            return solved(found.solution)

        def go_on(found: Iteration) -> Array:
            probes = _probes(min(self.rank, scaled.size), scaled, axis_name)
            return conjugate_gradients(
                multiply, nystroem(gram, prepared.damping, dot, probes), dot,
                found.solution, found.residual, target=target, max_iterations=self.max_iterations,
            ).solution  # fmt: skip

        is_done = (found.left <= target) | (found.size <= 0)
        return solved(lax.cond(is_done, lambda found: found.solution, go_on, found))

    def describe(self) -> str:
        return (
            "conjugate gradients: one forward- and one reverse-mode derivative an iteration until "
            f"the residual is {self.tolerance:g}, at most {self.max_iterations}"
        )


_PLAIN_ITERATIONS = 20


def _probes(rank: int, like: Array, axis_name: AxisName | None) -> Array:
    """Random vectors, other ones on every device."""
    key = jax.random.key(0)
    if axis_name is not None:
        key = jax.random.fold_in(key, lax.axis_index(axis_name))
    return jax.random.normal(key, (rank, *like.shape), like.dtype)


def _split(rows: int, x: Array, axis: int) -> Array:
    """Blocks of `rows` along `axis`, stacked along a new first axis and padded with zeros."""
    blocks = math.ceil(x.shape[axis] / rows)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, blocks * rows - x.shape[axis])
    padded = jnp.pad(x, widths)
    shape = (*x.shape[:axis], blocks, rows, *x.shape[axis + 1 :])
    return jnp.moveaxis(padded.reshape(shape), axis, 0)


def _in_groups(x: Array, groups: int) -> Array:
    """Groups of neighbouring outputs along a new second axis; outputs are the second one."""
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:])


def _local(x: Array, rows: int, axis_name: AxisName | None) -> Array:
    """The part of `x`, along its second axis, that belongs to this device along `axis_name`."""
    if axis_name is None:
        return x
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axis_name) * rows, rows, 1)


def _gather(x: Array, axis: int, axis_name: AxisName | None) -> Array:
    """`x` of all devices along `axis_name`, laid end to end along `axis`.

    In one shape for all axes behind it, so that the compiler sees what it has gathered already: the
    rows of a bias are the deltas of its kernel.
    """
    if axis_name is None:
        return x
    flat = x.reshape(*x.shape[: axis + 1], -1)
    gathered = lax.all_gather(flat, axis_name, axis=axis, tiled=True)
    return gathered.reshape(*gathered.shape[:-1], *x.shape[axis + 1 :])


@one_matrix_at_a_time
def solve_damped(matrix: Array, damping: Array, right: Array) -> tuple[Array, Array]:
    """Solves `(matrix + damping) x = right` for a symmetric matrix, not negative up to rounding.

    Cholesky factorisation is as exact for rows of very different sizes as for equal ones. It fails
    where rounding, about `sqrt(n)` units in the last place of a row's own diagonal entry, outweighs
    the damping. What the damping lacks to three times as much is added to the diagonal, relative to
    it: a soft lower bound on eigenvalues that the arithmetic cannot resolve, and nothing elsewhere.
    Should the factorisation fail nevertheless, the answer is a short gradient step in scaled
    coordinates, which is finite and descends.

    Returns:
        `x`, and `matrix x`.
    """
    size = matrix.shape[0]
    diagonal = jnp.diagonal(matrix) + damping
    diagonal = jnp.where(diagonal > 0, diagonal, 1)
    largest = jnp.max(diagonal)
    needed = _MARGIN * math.sqrt(size) * float(jnp.finfo(matrix.dtype).eps)
    added = damping + jnp.maximum(needed - damping / largest, 0) * diagonal
    # Scaled to a unit diagonal, no eigenvalue exceeds the size.
    short = right / (size * diagonal)

    def factorise(matrix: Array) -> Array:
        damped = matrix + jnp.where(jnp.eye(size, dtype=bool), added[:, None], 0)
        # The transpose of a symmetric matrix is free, and has the order of entries that LAPACK
        # wants. Vectors are rows, which CPUs do faster.
        lower = linalg.cholesky(damped.T, symmetrize_input=False)
        half = linalg.triangular_solve(lower, right[None], lower=True, transpose_a=True)
        solution = linalg.triangular_solve(lower, half, lower=True)[0]
        return jnp.where(jnp.all(jnp.isfinite(solution)), solution, short)

    def solve(matrix: Array, choice: Callable[[Array], Array]) -> tuple[Array, Array]:
        solution = choice(matrix)
        return solution, jnp.matmul(matrix, solution, precision=_EXACT)

    # A branch also makes XLA keep the matrix, which it would compute anew for the product.
    return lax.cond(
        jnp.isfinite(largest),
        lambda matrix: solve(matrix, factorise),
        lambda matrix: solve(matrix, lambda _: short),
        matrix,
    )
