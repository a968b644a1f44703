"""Symmetric systems that float32 can hardly tell from singular ones."""

import math

import jax.numpy as jnp
from jax import Array
from jax.lax import linalg

_MARGIN = 3.0  # singular Gram matrices of up to 512 rows failed at 0.5 and below, none at 1


def solve_damped(matrix: Array, damping: Array, right: Array) -> Array:
    """Solves `(matrix + damping) x = right` for a symmetric matrix, not negative up to rounding.

    Cholesky factorisation is as exact for rows of very different sizes as for equal ones. It fails
    where rounding, about `sqrt(n)` units in the last place of a row's own diagonal entry, outweighs
    the damping. What the damping lacks to three times as much is added to the diagonal, relative to
    it: a soft lower bound on eigenvalues that the arithmetic cannot resolve, and nothing elsewhere.

    There is no branch: under `vmap` both sides would be paid for, and on a busy CPU a loop costs
    more than the solve. Should the factorisation fail nevertheless, the answer is a short gradient
    step in scaled coordinates, which is finite and descends.
    """
    size = matrix.shape[0]
    diagonal = jnp.diagonal(matrix) + damping
    diagonal = jnp.where(diagonal > 0, diagonal, 1)
    needed = _MARGIN * math.sqrt(size) * float(jnp.finfo(matrix.dtype).eps)
    lacking = jnp.maximum(needed - damping / jnp.max(diagonal), 0)
    added = (damping + lacking * diagonal)[:, None] * jnp.eye(size, dtype=matrix.dtype)
    # The transpose of a symmetric matrix is free, and has the order of entries that LAPACK wants.
    lower = linalg.cholesky((matrix + added).T, symmetrize_input=False)
    # Vectors are rows, which CPUs do faster.
    half = linalg.triangular_solve(lower, right[None], lower=True, transpose_a=True)
    solution = linalg.triangular_solve(lower, half, lower=True)[0]
    # Scaled to a unit diagonal, no eigenvalue exceeds the size.
    return jnp.where(jnp.all(jnp.isfinite(solution)), solution, right / (size * diagonal))
