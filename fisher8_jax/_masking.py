"""Elements outside a mask, replaced before anything is computed from them.

Setting a result to 0 outside `where` is not enough: the derivative of the discarded branch would
still be computed, and 0 times nan is nan.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Family

SomeFamily = TypeVar("SomeFamily", bound=Family)


def zero_outside(x: Array, where: Array | None) -> Array:
    """`x` inside the batch-shaped `where`, 0 elsewhere."""
    return x if where is None else jnp.where(append_axes(where, x.ndim), x, 0)


def hide_outside(dist: SomeFamily, targets: Array, where: Array | None) -> tuple[SomeFamily, Array]:
    """Predictions and targets that are harmless outside `where`, whatever stood there.

    All parameters become 0, a valid value in unconstrained coordinates, and targets become the mean
    there, which lies in the support of every likelihood, as 0 does not.
    """
    if where is None:
        return dist, targets
    dist = jax.tree.map(lambda leaf: zero_outside(leaf, where), dist)
    inside = append_axes(where, targets.ndim)
    return dist, jnp.where(inside, targets, lax.stop_gradient(dist.mean).astype(targets.dtype))
