"""The two scores that most papers report, as functions of their own; `evaluate` gives all."""

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
    return reduce(points, root_mean_square(points, points.dist.residual(points.targets)))


def nll(
    dist: Predictive,
    targets: Array,
    *,
    axis: Axis = 0,
    where: Array | None = None,
    constant: bool = True,
) -> Array:
    """The mean negative log-likelihood in nats.

    Other arguments and the result are those of `rmse`.

    Args:
        constant: False leaves out what depends on nothing, for the Gaussian `ln(2 pi)/2 = 0.919`.
            Papers differ in this, so say which one is meant beside every figure.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> nll(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([0.0, 2.0]), constant=False)
        Array(1., dtype=float32)
    """
    points = prepare(dist, targets, where, axis, scalar=False)
    return reduce(points, nll_statistic(points, constant=constant))


def nll_statistic(points: Points, *, constant: bool) -> Statistic:
    return plain_mean(points.or_nan(points.dist.nll(points.targets, constant=constant)))
