"""The method of conjugate gradients, for solvers that form no matrix."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

_Iteration = tuple[Array, Array, Array, Array, Array, Array]


def conjugate_gradients(
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
