"""Unit variance: half the squared error, the loss that ignores the predicted scale."""

import jax.numpy as jnp
from jax import Array

from fisher8_jax.families import Family
from fisher8_jax.losses._elements import per_element


def unit_variance(
    dist: Family, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """`(mean - targets)^2 / 2`, the NLL of a Gaussian with variance 1 without its constant.

    * mean update: `mean - targets`
    * scale update: 0
    * stops nothing; the scale is not trained

    Args:
        dist: the predicted distribution, any family; only its mean is used.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.

    Returns:
        One value per element of the batch, summed over the coordinates of a vector-valued target.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> unit_variance(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 2.0]))
        Array([0.5, 2. ], dtype=float32)
    """
    return per_element(half_squared_error, dist, targets, where, weights)


def half_squared_error(dist: Family, targets: Array) -> Array:
    """`(mean - targets)^2 / 2`, summed over the coordinates of a vector-valued target."""
    event_axes = tuple(range(-len(dist.event_shape), 0))
    return jnp.sum(0.5 * jnp.square(targets - dist.mean), event_axes)
