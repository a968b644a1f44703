"""A rising map of probabilities that makes the held-out PIT uniform.

If the targets of a model fall below its quantile `u` with frequency `R(u)`, the recalibrated cdf is
`R(F(y))`. `R` is the isotonic regression of the empirical cdf of the held-out PIT on the PIT. These
pairs rise already, so the least-squares rising fit passes through them and there is nothing to
pool. What is left to choose is how many of them to keep: every 1/n-th gives a cdf that is right but
so rough that its density is noise, so `R` keeps a fixed number of steps of equal probability.
"""

import dataclasses
from typing import Self

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_count
from fisher8_jax._internal.trees import register_tree
from fisher8_jax._points import (
    Axis,
    Points,
    check_calibrated_shape,
    check_predictive,
    count,
    prepare,
)
from fisher8_jax.calibration._recalibrated import Recalibrated, recalibrate
from fisher8_jax.families import Predictive


@register_tree
@dataclasses.dataclass(frozen=True)
class IsotonicPIT:
    """The rising, piecewise linear map with `R(knots[..., k]) = k / bins`, one per target.

    In float32 a cdf is exactly 1 beyond 5.5 standard deviations. If many targets lie there, the
    upper tail of the recalibrated distribution is infinite: correct the scale by `VarianceScaling`
    first and fit this map to what is left.

    Args:
        knots: values of the PIT from 0 to 1 on the last axis, `bins + 1` of them; length 1 on the
            axes of the examples.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> held_out = Gaussian(jnp.zeros(1000), jnp.zeros(1000))
        >>> targets = 1.5 * jax.random.normal(jax.random.key(0), (1000,))
        >>> calibrator = IsotonicPIT.fit(held_out, targets)
        >>> dist = calibrator.apply(Gaussian(jnp.zeros(2), jnp.zeros(2)))
        >>> bool(1.4 < jnp.sqrt(dist.variance[0]) < 1.6)
        True

    Reference:
        Kuleshov, Fenner and Ermon, Accurate uncertainties for deep learning using calibrated
        regression, ICML 2018, algorithm 1.
    """

    knots: Array

    @classmethod
    def fit(
        cls,
        dist: Predictive,
        targets: Array,
        *,
        axis: Axis = 0,
        where: Array | None = None,
        bins: int = 40,
    ) -> Self:
        """Knots at equal steps of the empirical cdf of the held-out PIT.

        The i-th smallest of `n` values gets the probability `i / (n + 1)`, its expectation for
        uniform values, so that some probability is left outside of what was seen. Other arguments
        are those of `VarianceScaling.fit`.

        Args:
            bins: number of steps. The default puts the ends of the 50 %, 90 % and 95 % intervals on
                knots; `n + 1` keeps every point.

        Returns:
            The calibrator; its knots are nan without any point or with a non-finite prediction.
        """
        bins = check_count("bins", bins)
        points = prepare(dist, targets, where, axis)
        if points.dist.is_discrete:
            raise TypeError(
                f"`IsotonicPIT` needs continuous targets, got {type(dist).__name__}, whose cdf has "
                "jumps. Use `SplitConformal` for its intervals."
            )
        knots = _equal_steps(_sorted_pit(points), count(points), bins)
        bad = jnp.any(jnp.isnan(points.pit) & points.mask, axis=points.axes)
        bad |= count(points) == 0
        knots = jnp.where(bad[..., None], jnp.nan, knots)
        return cls(jnp.expand_dims(knots, points.axes))

    def apply(self, dist: Predictive) -> Recalibrated:
        """The distribution with cdf `R(dist.cdf(y))`.

        Args:
            dist: new predictions of the same model, with any number of examples.

        Returns:
            A distribution with nll, cdf, quantile, mean, variance, crps and samples, which
            `evaluate` takes.
        """
        dist = check_predictive(dist).widen()
        shape = (*dist.batch_shape, self.knots.shape[-1])
        return recalibrate(dist, check_calibrated_shape("knots", self.knots, shape))


def _sorted_pit(points: Points) -> Array:
    """PIT values in rising order on a new last axis; masked ones are 1 and so come last."""
    values = jnp.where(points.mask, points.pit, 1)
    kept = [n for axis, n in enumerate(values.shape) if axis not in points.axes]
    positions = range(-len(points.axes), 0)
    return jnp.sort(jnp.moveaxis(values, points.axes, positions).reshape(*kept, -1), axis=-1)


def _equal_steps(ordered: Array, number: Array, bins: int) -> Array:
    """The inverse of the line through (0, 0), (ordered[i], i / (number + 1)), (1, 1)."""
    rest = [(0, 0)] * (ordered.ndim - 1)
    # Index 0 holds the value 0 and everything past the last point the value 1.
    ladder = jnp.pad(ordered, [*rest, (1, 0)])
    ladder = jnp.pad(ladder, [*rest, (0, 2)], constant_values=1)
    steps = jnp.broadcast_to(jnp.arange(bins + 1), (*number.shape, bins + 1))
    position = steps * (number[..., None] + 1)
    index = (position // bins).astype(jnp.int32)
    fraction = (position % bins).astype(ordered.dtype) / bins
    low = jnp.take_along_axis(ladder, index, axis=-1)
    high = jnp.take_along_axis(ladder, index + 1, axis=-1)
    return low + fraction * (high - low)
