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

from fisher8_jax._numerics import at_least_float32


def relative_change(updates: optax.Updates, params: optax.Params, typical: Array) -> Array:
    """The largest change of an array in units of its size, both as root mean squares.

    An array smaller than `typical` counts as that large: biases start at zero and have to move.
    """
    changes = [
        _rms(update) / jnp.maximum(_rms(param), typical)
        for update, param in zip(_arrays(updates), _arrays(params), strict=True)
    ]
    return jnp.max(jnp.stack(changes), initial=0) if changes else jnp.zeros(())


def typical_size(params: optax.Params) -> Array:
    """The geometric mean of the sizes of all matrices that are not zero; 1 if nothing is left.

    Vectors and scalars, which are mostly biases, count only where there is no matrix.
    """
    matrices = [leaf for leaf in _arrays(params) if jnp.ndim(leaf) >= 2]
    of_all = _geometric_mean(_arrays(params), otherwise=jnp.ones(()))
    return _geometric_mean(matrices, otherwise=of_all) if matrices else of_all


def _geometric_mean(leaves: list[Array], *, otherwise: Array) -> Array:
    if not leaves:
        return otherwise
    sizes = jnp.stack([_rms(leaf) for leaf in leaves])
    is_counted = (sizes > 0) & jnp.isfinite(sizes)
    number = jnp.sum(is_counted)
    total = jnp.sum(jnp.where(is_counted, jnp.log(jnp.where(is_counted, sizes, 1)), 0))
    return jnp.where(number > 0, jnp.exp(total / jnp.maximum(number, 1)), otherwise)


def _rms(leaf: Array) -> Array:
    """The root mean square in float32, divided by the largest magnitude before it is squared."""
    leaf = jnp.abs(at_least_float32(jnp.asarray(leaf)))
    largest = jnp.max(leaf)
    divisor = jnp.where(largest == 0, 1, largest)
    return (largest * jnp.sqrt(jnp.mean(jnp.square(leaf / divisor)))).astype(jnp.float32)


def _arrays(tree: chex.ArrayTree) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.size(leaf)]
