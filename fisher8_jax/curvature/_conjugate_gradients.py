"""The method of conjugate gradients with a low-rank preconditioner, without any matrix.

The preconditioner is the Nystroem approximation of the Gram matrix from its products with a few
random vectors: the large eigenvalues, which cost the iterations, are taken out.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.lax import linalg

from fisher8_jax._internal.batching import one_matrix_at_a_time

Product = Callable[[Array], Array]
Dot = Callable[[Array, Array], Array]
_EXACT = lax.Precision.HIGHEST


class Iteration(NamedTuple):
    """What an iteration hands to the next.

    Attributes:
        solution: so far.
        residual: what is left of the right-hand side.
        direction: of the next step.
        size: the residual's product with its preconditioned self; 0 ends the iteration.
        left: the squared length of the residual.
        largest: the largest curvature seen.
        steps: how many iterations were made.
    """

    solution: Array
    residual: Array
    direction: Array
    size: Array
    left: Array
    largest: Array
    steps: Array


def conjugate_gradients(
    multiply: Product,
    precondition: Product,
    dot: Dot,
    start: Array,
    residual: Array,
    *,
    target: Array,
    max_iterations: int,
) -> Iteration:
    """The textbook iteration; ends where rounding leaves nothing to be gained.

    That is where the curvature along a direction is lost in the rounding of the largest one seen:
    a step along it would be of arbitrary length.

    Args:
        multiply: the positive definite matrix, as a function.
        precondition: about its inverse, symmetric and positive definite.
        dot: the inner product.
        start: the first guess.
        residual: what it leaves of the right-hand side.
        target: the squared length of the residual to stop at.
        max_iterations: the largest number of iterations.
    """
    smallest = float(jnp.finfo(residual.dtype).eps)

    def is_unfinished(now: Iteration) -> Array:
        return (now.left > target) & (now.size > 0) & (now.steps < max_iterations)

    def iterate(now: Iteration) -> Iteration:
        image = multiply(now.direction)
        curved, square = dot(now.direction, image), dot(now.direction, now.direction)
        curvature = curved / jnp.where(square > 0, square, 1)
        largest = jnp.maximum(now.largest, curvature)
        is_sound = (curvature > smallest * largest) & (curved > 0)
        length = now.size / jnp.where(is_sound, curved, 1)
        residual = now.residual - length * image
        turned = precondition(residual)
        size, left = dot(residual, turned), dot(residual, residual)
        is_sound &= jnp.isfinite(size)
        return Iteration(
            jnp.where(is_sound, now.solution + length * now.direction, now.solution),
            jnp.where(is_sound, residual, now.residual),
            turned + size / now.size * now.direction,
            jnp.where(is_sound, size, 0),
            jnp.where(is_sound, left, now.left),
            largest,
            now.steps + 1,
        )

    turned = precondition(residual)
    size, count = dot(residual, turned), jnp.zeros((), jnp.int32)
    left = dot(residual, residual)
    first = Iteration(start, residual, turned, size, left, jnp.zeros_like(size), count)
    return lax.while_loop(is_unfinished, iterate, first)


def nystroem(multiply: Product, damping: Array, dot: Dot, probes: Array) -> Product:
    """About the inverse of `matrix + damping`, up to a factor.

    With the products `Y` of the matrix and the probes `V`, the matrix is about
    `Y (V' Y)^-1 Y' = B B'`, and `(B B' + damping)^-1 damping = 1 - B (B' B + damping)^-1 B'`.

    Args:
        multiply: the matrix without damping, as a function.
        damping: what is added to it.
        dot: the inner product.
        probes: random vectors along the first axis.

    Reference:
        Frangella, Tropp and Udell, Randomized Nystroem preconditioning, SIAM J. Matrix Analysis and
        Applications 2023.
    """
    products = lax.map(multiply, probes, batch_size=8)
    gram = jax.vmap(jax.vmap(dot, (None, 0)), (0, None))
    # As much of the identity as rounding needs to leave the small matrix positive definite.
    sizes = [jnp.sqrt(jnp.trace(gram(x, x))) for x in (products, probes)]
    length = probes[0].size ** 0.5
    shift = 2 * length * float(jnp.finfo(probes.dtype).eps) * sizes[0] / sizes[1]
    products = products + shift * probes
    small = gram(probes, products)
    factor = _cholesky(0.5 * (small + small.T))
    flat = products.reshape(len(products), -1)
    basis = linalg.triangular_solve(factor, flat, left_side=True, lower=True)
    basis = basis.reshape(products.shape)
    inner = _cholesky(gram(basis, basis) + damping * jnp.eye(len(basis), dtype=basis.dtype))

    def precondition(vector: Array) -> Array:
        inside = jax.vmap(dot, (0, None))(basis, vector)[None]
        half = linalg.triangular_solve(inner, inside, lower=True, transpose_a=True)
        solved = linalg.triangular_solve(inner, half, lower=True)[0]
        turned = vector - jnp.tensordot(solved, basis, 1, precision=_EXACT)
        return jnp.where(jnp.all(jnp.isfinite(turned)), turned, vector)

    return precondition


@one_matrix_at_a_time
def _cholesky(matrix: Array) -> Array:
    return linalg.cholesky(matrix, symmetrize_input=False)
