"""Errors of the predicted mean; the predicted variance plays no part."""

import jax.numpy as jnp
from jax import Array

from fisher8_jax._points import Axis, Points, Statistic, plain_mean, prepare, reduce
from fisher8_jax._points import root_mean_square as _root_mean_square
from fisher8_jax.families import Predictive


def rmse(dist: Predictive, targets: Array, *, axis: Axis = 0, where: Array | None = None) -> Array:
    """The root mean squared error `sqrt(mean((targets - dist.center)^2))`, in units of the targets.

    All metrics share these arguments. Values are computed in at least float32.

    Args:
        dist: the predicted distributions, any family, in the units in which to score
            (`dist.unscale(shift, scale)` returns to the original ones).
        targets: observed values, exactly the shape of the predictions.
        axis: the axis or axes of the examples, None for all. Every other coordinate (a target, a
            fold) keeps a value of its own. Counted in `dist.batch_shape`.
        where: boolean, False for padding and missing targets, whose targets may be nan. Same rank
            as the predictions; axes of length 1 broadcast.

    Returns:
        One value per remaining coordinate; nan where the mask leaves no element, and where a
        prediction or an unmasked target is nan.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> rmse(dist, jnp.array([1.0, 7.0]))
        Array(5., dtype=float32)
    """
    points = prepare(dist, targets, where, axis, scalar=False)
    return reduce(points, rmse_statistic(points))


def mae(dist: Predictive, targets: Array, *, axis: Axis = 0, where: Array | None = None) -> Array:
    """The mean absolute error `mean(|targets - dist.center|)`, in units of the targets.

    Args:
        dist: see `rmse`.
        targets: see `rmse`.
        axis: see `rmse`.
        where: see `rmse`.

    Returns:
        One value per remaining coordinate.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> mae(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 7.0]))
        Array(4., dtype=float32)
    """
    points = prepare(dist, targets, where, axis, scalar=False)
    return reduce(points, mae_statistic(points))


def rmse_statistic(points: Points) -> Statistic:
    return _root_mean_square(points, points.dist.residual(points.targets))


def mae_statistic(points: Points) -> Statistic:
    return plain_mean(jnp.abs(points.dist.residual(points.targets)))
