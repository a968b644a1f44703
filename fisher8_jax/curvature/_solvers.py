"""Ways to solve `(K / elements + damping) z = u` in the whitened outputs."""

from typing import NamedTuple, Protocol

import jax.numpy as jnp
from chex import ArrayTree
from jax import Array, lax

from fisher8_jax._numerics import AxisName
from fisher8_jax.curvature._gram import gram_matrix
from fisher8_jax.curvature._linear_algebra import solve_positive
from fisher8_jax.curvature._plan import Plan
from fisher8_jax.curvature._trace import Network, Pass


class Problem(NamedTuple):
    """A batch on which a network is to be linearised.

    Attributes:
        network: the traced network.
        plan: how each of its leaves enters the Gram matrix.
        leaves: its parameters.
        forward: its forward pass on the batch.
        deltas: the whitened outputs' derivatives with respect to the results of all uses.
        elements: how many elements the mean runs over.
        damping: what is added to the whitened curvature.
        axis_name: the mapped axis that the rows are split over.
    """

    network: Network
    plan: Plan
    leaves: list[Array]
    forward: Pass
    deltas: list[list[Array]]
    elements: Array
    damping: Array
    axis_name: AxisName | None


class Solver(Protocol):
    """One way to solve; hashable, because it is part of the program and not of its data."""

    def prepare(self, problem: Problem) -> ArrayTree:
        """What has to be kept for `solve`."""

    def solve(self, prepared: ArrayTree, right: Array, axis_name: AxisName | None) -> Array:
        """`z` for the right-hand side `u`, both of shape `(outputs, rows)`."""


class Direct(NamedTuple):
    """Forms the whole matrix and factorises it."""

    def prepare(self, problem: Problem) -> Array:
        def gather(x: Array, axis: int) -> Array:
            return _gather(x, axis, problem.axis_name)

        blocks = gram_matrix(
            problem.network,
            problem.plan,
            problem.leaves,
            problem.forward,
            problem.deltas,
            gather,
        )
        blocks = gather(blocks, 1)
        size = blocks.shape[0] * blocks.shape[1]
        matrix = blocks.reshape(size, size) / problem.elements
        return matrix + problem.damping * jnp.eye(size, dtype=matrix.dtype)

    def solve(self, prepared: Array, right: Array, axis_name: AxisName | None) -> Array:
        everywhere = _gather(right, 1, axis_name)
        flat = everywhere.reshape(-1).astype(prepared.dtype)
        solution = solve_positive(prepared, flat).reshape(everywhere.shape)
        if axis_name is None:
            return solution
        rows = right.shape[1]
        start = lax.axis_index(axis_name) * rows
        return lax.dynamic_slice_in_dim(solution, start, rows, 1)


def _gather(x: Array, axis: int, axis_name: AxisName | None) -> Array:
    """`x` of all places along `axis_name`, laid end to end along `axis`."""
    return x if axis_name is None else lax.all_gather(x, axis_name, axis=axis, tiled=True)
