"""Fisher8 behind the signature of the other losses."""

from jax import Array

from fisher8_jax._fisher8 import fisher8_nll
from fisher8_jax._numerics import AxisName
from fisher8_jax.families.contract import Family


def fisher8(
    dist: Family,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    axis: int | tuple[int, ...] = 0,
    axis_name: AxisName | None = None,
) -> Array:
    """The NLL, back-propagated by its inverse Fisher information with unit norm over the batch.

    * mean update: `(mean - targets) / norm(mean - targets)`
    * scale update: `(1 - z^2) / norm(1 - z^2)` on the log-variance
    * replaces the gradient of the NLL; targets, mask and weights are constants

    The loss form of the operation `fisher8_jax.fisher8`, equal to `fisher8_jax.fisher8_nll`.

    Args:
        dist: the predicted distribution, any family.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient, nor in the norm. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        axis: the batch axis, or all axes that one norm runs over.
        axis_name: the mapped axis that the batch is split over under `vmap` or `shard_map`.

    Returns:
        The NLL per element; a common factor on it does not change the gradient.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> targets = jnp.array([3.0, 4.0])
        >>> loss = lambda mean: fisher8(Gaussian(mean, jnp.zeros(2)), targets).mean()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([-0.6, -0.8], dtype=float32)

    Reference:
        Fisher8, UAI 2026, the batched update rule.
    """
    return fisher8_nll(dist, targets, where=where, weights=weights, axis=axis, axis_name=axis_name)
