"""How far a step moves the parameters themselves, in units of their size.

The KL radius bounds how far the predictions move, and lengthens a step until they move that far.
If they hardly answer any more, because hidden units have died, the step in the parameters grows
without bound and kills the rest. So the parameters get a bound of their own.
"""

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.numerics import LARGE_ARRAY, at_least_float32

_SMALLEST_CHANGE = 1e-17


def relative_change(updates: optax.Updates, params: optax.Params, typical: Array) -> Array:
    """The largest change of an array in units of its size, both as root mean squares.

    An array smaller than `typical` counts as that large: biases start at zero and have to move.
    Without a matrix there are no hidden units to protect, and the answer is 0. It is not finite
    where an update is not.
    """
    leaves = _arrays(params)
    if not has_matrix(params):
        return jnp.zeros(())

    def in_typical_sizes(leaf: Array) -> Array:
        if leaf.size > LARGE_ARRAY:
            return root_mean_square(leaf) / typical
        return root_mean_square(at_least_float32(leaf) * (1 / typical))

    changes = [
        in_typical_sizes(update) / jnp.maximum(in_typical_sizes(param), 1)
        for update, param in zip(_arrays(updates), leaves, strict=True)
    ]
    # Squares of what is smaller may be lost; counted as that large, it stays within the bound.
    largest = jnp.maximum(jnp.max(jnp.stack(changes)), _SMALLEST_CHANGE)
    total = sum(changes, jnp.zeros(()))  # XLA's maxima may pass over nan
    return jnp.where(jnp.isfinite(total), largest, total).astype(jnp.float32)


def root_mean_square(leaf: Array) -> Array:
    """The size of an array; squares of tiny numbers are lost."""
    return jnp.sqrt(jnp.mean(jnp.square(at_least_float32(leaf))))


def has_matrix(params: optax.Params) -> bool:
    """Whether there are hidden units to protect."""
    return any(_is_matrix(leaf) for leaf in _arrays(params))


def typical_size(params: optax.Params) -> Array:
    """The geometric mean of the sizes of all matrices that are not zero; 1 if nothing is left."""
    matrices = [leaf for leaf in _arrays(params) if _is_matrix(leaf)]
    if not matrices:
        return jnp.ones(())
    sizes = jnp.stack([_rms(leaf) for leaf in matrices])
    is_counted = (sizes > 0) & jnp.isfinite(sizes)
    number = jnp.sum(is_counted)
    total = jnp.sum(jnp.where(is_counted, jnp.log(jnp.where(is_counted, sizes, 1)), 0))
    return jnp.where(number > 0, jnp.exp(total / jnp.maximum(number, 1)), 1.0)


def _is_matrix(leaf: Array) -> bool:
    return jnp.ndim(leaf) >= 2


def _rms(leaf: Array) -> Array:
    """The root mean square in float32, divided by the largest magnitude before it is squared."""
    leaf = jnp.abs(at_least_float32(leaf))
    largest = jnp.max(leaf)
    divisor = jnp.where(largest == 0, 1, largest)
    return (largest * jnp.sqrt(jnp.mean(jnp.square(leaf / divisor)))).astype(jnp.float32)


def _arrays(tree: chex.ArrayTree) -> list[Array]:
    return [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree) if jnp.size(leaf)]
