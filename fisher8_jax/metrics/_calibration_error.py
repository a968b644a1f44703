"""Is the predicted probability the observed frequency? Judged by the PIT.

The probability integral transform (PIT) of a target is the predicted cdf at that target. If the
predictions are right, it is uniform on [0, 1]. That holds for continuous distributions; for counts
the cdf has jumps, and these measures are biased.
"""

import jax.numpy as jnp
from jax import Array

from fisher8_jax._points import Axis, Points, Statistic, mean_per_level, prepare, reduce
from fisher8_jax.families import Predictive

PIT_BINS = 10
QUANTILE_LEVELS = tuple(k / 20 for k in range(1, 20))


def ece(dist: Predictive, targets: Array, *, axis: Axis = 0, where: Array | None = None) -> Array:
    """The expected calibration error of the Fisher8 paper: `mean over bins of |share - 1/10|`.

    The mean runs over those of ten equal PIT bins that are not empty. On finite predictions this is
    the paper's number. The paper leaves non-finite predictions out, so a model that diverged to nan
    scores a perfect 0 there. Here they fill an eleventh bin in which nothing is expected: a wholly
    diverged model scores 1, the worst value there is.

    A perfectly calibrated model scores about `0.24 / sqrt(n)`, its sampling noise.

    Arguments and result are those of `rmse`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> diverged = Gaussian(jnp.full(5, jnp.nan), jnp.zeros(5))
        >>> ece(diverged, jnp.zeros(5))
        Array(1., dtype=float32)
    """
    points = prepare(dist, targets, where, axis)
    return ece_from_shares(reduce(points, pit_statistic(points)))


def pit_statistic(points: Points) -> Statistic:
    """Ten shares of the PIT bins and the share that is in none of them."""
    edges = jnp.linspace(0, 1, PIT_BINS + 1, dtype=points.pit.dtype)
    values = points.pit[..., None]
    lower = jnp.broadcast_to(edges[:-1], (*points.pit.shape, PIT_BINS))
    upper = jnp.broadcast_to(edges[1:], lower.shape)
    is_last = jnp.broadcast_to(jnp.arange(PIT_BINS) == PIT_BINS - 1, lower.shape)
    inside = (values >= lower) & ((values < upper) | (is_last & (values == upper)))
    nowhere = ~jnp.any(inside, axis=-1, keepdims=True)
    return mean_per_level(points.share(jnp.concatenate([inside, nowhere], axis=-1)))


def ece_from_shares(shares: Array) -> Array:
    """The paper's ECE from eleven shares, the last one of non-finite predictions."""
    expected = jnp.asarray([1 / PIT_BINS] * PIT_BINS + [0.0], shares.dtype)
    gaps = jnp.abs(shares - jnp.broadcast_to(expected, shares.shape))
    is_filled = shares != 0
    return jnp.sum(jnp.where(is_filled, gaps, 0), axis=-1) / jnp.sum(is_filled, axis=-1)


def quantile_statistic(points: Points) -> Statistic:
    """The mean over levels of `|share of targets at or below that quantile - level|`.

    A non-finite prediction counts as a target below none of its quantiles, so a wholly diverged
    model scores 1/2, as much as a model whose targets lie above all its quantiles.

    Reference:
        Kuleshov, Fenner and Ermon, Accurate uncertainties for deep learning, ICML 2018, eq. 9,
        with absolute instead of squared differences.
    """
    levels = QUANTILE_LEVELS
    nominal = jnp.asarray(levels, points.pit.dtype)
    below = points.pit[..., None] <= jnp.broadcast_to(nominal, (*points.pit.shape, len(levels)))

    def finish(means: Array) -> Array:
        return jnp.mean(jnp.abs(means - jnp.broadcast_to(nominal, means.shape)), axis=-1)

    return Statistic(points.share(below), finish)
