"""Scores that use the predicted variance as a likelihood does."""

import jax.numpy as jnp
from jax import Array

from fisher8_jax._points import (
    Axis,
    Points,
    Statistic,
    plain_mean,
    prepare,
    reduce,
    root_mean_square,
)
from fisher8_jax.families import Predictive


def nll(
    dist: Predictive,
    targets: Array,
    *,
    axis: Axis = 0,
    where: Array | None = None,
    constant: bool = True,
) -> Array:
    """The mean negative log-likelihood in nats.

    Args:
        dist: see `rmse`.
        targets: see `rmse`.
        axis: see `rmse`.
        where: see `rmse`.
        constant: False leaves out what depends on nothing, for the Gaussian `ln(2 pi)/2 = 0.919`.
            Papers differ in this, so say which one is meant beside every figure.

    Returns:
        One value per remaining coordinate.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> nll(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([0.0, 2.0]), constant=False)
        Array(1., dtype=float32)
    """
    points = prepare(dist, targets, where, axis, scalar=False)
    return reduce(points, nll_statistic(points, constant=constant))


def mean_z_squared(
    dist: Predictive, targets: Array, *, axis: Axis = 0, where: Array | None = None
) -> Array:
    """The mean squared standardised residual `mean((targets - mean)^2 / variance)`.

    1 for an honest variance, above 1 for an overconfident one. It is also the factor on the
    variance that minimises the Gaussian NLL.

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
        >>> mean_z_squared(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([0.0, 2.0]))
        Array(2., dtype=float32)
    """
    points = prepare(dist, targets, where, axis)
    return reduce(points, mean_z_squared_statistic(points))


def nll_statistic(points: Points, *, constant: bool) -> Statistic:
    return plain_mean(points.or_nan(points.dist.nll(points.targets, constant=constant)))


def mean_z_squared_statistic(points: Points) -> Statistic:
    return plain_mean(jnp.square(points.z))


def sharpness_statistic(points: Points) -> Statistic:
    return root_mean_square(points, points.or_nan(points.dist.std))
