"""What all losses share: masked elements are never seen, weights multiply at the end.

Setting the result to 0 outside `where` is not enough: the derivative of the discarded branch would
still be computed, and 0 times nan is nan. So predictions, targets and weights are replaced by
harmless values first.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._checks import check_mask
from fisher8_jax._fisher8 import weighted_values
from fisher8_jax.families.contract import Family
from fisher8_jax.losses._checks import check_family

SomeFamily = TypeVar("SomeFamily", bound=Family)


def per_element(
    loss: Callable[[SomeFamily, Array], Array],
    dist: SomeFamily,
    targets: Array,
    where: Array | None,
    weights: Array | None,
) -> Array:
    """`weights * loss(dist, targets)`, and 0 outside `where` whatever stands there."""
    check_family(dist)
    targets = dist.check_targets(targets)
    if weights is not None:
        weights = check_mask("weights", weights, dist.batch_shape, boolean=False)
    if where is None:
        return weighted_values(loss(dist, targets), None, weights)
    where = check_mask("where", where, dist.batch_shape)
    dist = zero_outside(dist, where)
    # The mean lies in the support of every likelihood, 0 does not.
    inside = _expand(where, targets.ndim)
    targets = jnp.where(inside, targets, lax.stop_gradient(dist.mean))
    weights = None if weights is None else jnp.where(where, weights, 0)
    return weighted_values(loss(dist, targets), where, weights)


def zero_outside(dist: SomeFamily, where: Array) -> SomeFamily:
    """`dist` with all parameters 0 outside `where`, a valid value in unconstrained coordinates."""
    return jax.tree.map(lambda leaf: jnp.where(_expand(where, leaf.ndim), leaf, 0), dist)


def _expand(mask: Array, ndim: int) -> Array:
    """`mask` with its own axes followed by axes of length 1."""
    return mask.reshape(mask.shape + (1,) * (ndim - mask.ndim))
