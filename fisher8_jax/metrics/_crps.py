"""The continuous ranked probability score; every distribution computes its own.

It has the units of the target, is never negative, and is the absolute error for a certain
prediction.
"""

from jax import Array

from fisher8_jax._points import Axis, Points, Statistic, plain_mean, prepare, reduce
from fisher8_jax.families import Predictive


def crps(dist: Predictive, targets: Array, *, axis: Axis = 0, where: Array | None = None) -> Array:
    """The mean continuous ranked probability score, in units of the targets; smaller is better.

    Args:
        dist: see `rmse`. Scored by its own method: a closed form where there is one, else a
            quadrature over the quantile function.
        targets: see `rmse`.
        axis: see `rmse`.
        where: see `rmse`.

    Returns:
        One value per remaining coordinate.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> round(float(crps(Gaussian(jnp.zeros(1), jnp.zeros(1)), jnp.zeros(1))), 4)
        0.2337

    Reference:
        Gneiting and Raftery, Strictly proper scoring rules, JASA 2007, section 4.2.
    """
    points = prepare(dist, targets, where, axis)
    return reduce(points, crps_statistic(points))


def crps_statistic(points: Points) -> Statistic:
    return plain_mean(points.or_nan(points.dist.crps(points.targets)))
