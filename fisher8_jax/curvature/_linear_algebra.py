"""Symmetric systems that float32 can hardly tell from singular ones."""

import jax.numpy as jnp
from jax import Array, lax
from jax.lax import linalg

_EXACT = lax.Precision.HIGHEST
_ROUNDING = 10  # what is added to a unit diagonal, and the smallest eigenvalue kept, in epsilons


def solve_positive(matrix: Array, right: Array) -> Array:
    """Solves `matrix x = right` for a symmetric matrix that is positive up to rounding.

    Rows and columns are scaled to a unit diagonal first, so that entries of very different sizes
    do not drown each other. A little is added to the diagonal for the Cholesky factorisation, and
    one step of refinement takes its effect out again where the system allows it. Should the
    factorisation fail nevertheless, eigenvalues are clipped from below.
    """
    diagonal = jnp.diagonal(matrix)
    scale = lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1))
    unit = matrix * scale[:, None] * scale[None, :]
    unit = 0.5 * (unit + unit.T)
    right = right * scale
    smallest = _ROUNDING * float(jnp.finfo(unit.dtype).eps)
    solution = _by_cholesky(unit, right, smallest)

    # A loop of at most one turn: under vmap a conditional would pay for both branches every time.
    def has_failed(carry: tuple[Array, Array]) -> Array:
        solution, tries = carry
        return (tries == 0) & ~jnp.all(jnp.isfinite(solution)) & jnp.all(jnp.isfinite(unit))

    def repair(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return _by_eigenvalues(unit, right, smallest), carry[1] + 1

    tries = jnp.zeros_like(solution[0], jnp.int32)
    solution, _ = lax.while_loop(has_failed, repair, (solution, tries))
    return solution * scale


def _by_cholesky(unit: Array, right: Array, smallest: float) -> Array:
    added = smallest * jnp.eye(unit.shape[0], dtype=unit.dtype)
    lower = linalg.cholesky(unit + added, symmetrize_input=False)

    def solve(b: Array) -> Array:
        half = linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True)
        options = {"left_side": True, "lower": True, "transpose_a": True}
        return linalg.triangular_solve(lower, half, **options)[:, 0]

    first = solve(right)
    return first + solve(right - jnp.matmul(unit, first, precision=_EXACT))


def _by_eigenvalues(unit: Array, right: Array, smallest: float) -> Array:
    values, vectors = jnp.linalg.eigh(unit)
    values = jnp.maximum(values, smallest)
    along = jnp.matmul(vectors.T, right, precision=_EXACT)
    return jnp.matmul(vectors, along / values, precision=_EXACT)
