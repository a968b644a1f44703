"""What all losses share: masked elements are never seen, weights multiply at the end.

Setting the result to 0 outside `where` is not enough: the derivative of the discarded branch would
still be computed, and 0 times nan is nan. So predictions, targets and weights are replaced by
harmless values first. The first of these keeps the gradient clean; all together keep nan from
arising even on the way, where `jax_debug_nans` would report it.
"""

from collections.abc import Callable
from typing import TypeVar

import jax.numpy as jnp
from jax import Array

from fisher8_jax._fisher8 import check_family, weighted_values
from fisher8_jax._internal.checks import check_mask, check_weights
from fisher8_jax._masking import hide_outside
from fisher8_jax.families import Family

SomeFamily = TypeVar("SomeFamily", bound=Family)


def per_element(
    loss: Callable[[SomeFamily, Array], Array],
    dist: SomeFamily,
    targets: Array,
    where: Array | None = None,
    weights: Array | None = None,
) -> Array:
    """`weights * loss(dist, targets)`, and 0 outside `where` whatever stands there.

    Args:
        loss: one value per element, from predictions and targets that are valid everywhere.
        dist: the predicted distribution, any family.
        targets: observed values, exactly the shape of the predictions; nan outside `where`.
        where: boolean, the elements that count; None for all.
        weights: a factor on the loss of each element; None for 1.

    Returns:
        One value per element, without nan in value or gradient outside `where`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist, seen = Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([True, False])
        >>> absolute_error = lambda dist, targets: jnp.abs(targets - dist.mean)
        >>> per_element(absolute_error, dist, jnp.array([3.0, jnp.nan]), seen)
        Array([3., 0.], dtype=float32)
    """
    check_family("`dist`", dist)
    targets = dist.check_targets(targets)
    if weights is not None:
        weights = check_weights("weights", weights, dist.batch_shape)
    if where is None:
        return weighted_values(loss(dist, targets), None, weights)
    where = check_mask("where", where, dist.batch_shape)
    dist, targets = hide_outside(dist, targets, where)
    weights = None if weights is None else jnp.where(where, weights, 0)
    return weighted_values(loss(dist, targets), where, weights)
