"""Intervals with a guaranteed coverage on exchangeable data, whatever the model."""

import dataclasses
from fractions import Fraction
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.checks import check_levels
from fisher8_jax._internal.trees import register_tree
from fisher8_jax._points import (
    INTERVAL_LEVELS,
    Axis,
    Points,
    check_calibrated_shape,
    count,
    prepare,
)
from fisher8_jax.families import Predictive
from fisher8_jax.metrics import Interval


@register_tree
@dataclasses.dataclass(frozen=True)
class SplitConformal:
    """Intervals `mean +- radius * std`, wide enough for the errors seen on held-out data.

    If held-out and new examples are exchangeable, a new target lies in its interval with at least
    the nominal probability, for any model and any number of held-out points. The probability is
    over both, not for each input by itself.

    Args:
        radius: one per target and level, levels on the last axis, in predicted standard deviations;
            length 1 on the axes of the examples.
        levels: the nominal levels.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> held_out = Gaussian(jnp.zeros(9), jnp.zeros(9))
        >>> calibrator = SplitConformal.fit(held_out, jnp.arange(9.0), levels=(0.5, 0.9, 0.95))
        >>> calibrator.radius
        Array([[ 4.,  8., inf]], dtype=float32)

    Reference:
        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, Distribution-free predictive inference for
        regression, JASA 2018, sections 2.2 and 5.2 (locally weighted residuals).
    """

    radius: Array
    levels: tuple[float, ...] = dataclasses.field(metadata={"static": True})

    @classmethod
    def fit(
        cls,
        dist: Predictive,
        targets: Array,
        *,
        axis: Axis = 0,
        where: Array | None = None,
        levels: tuple[float, ...] = INTERVAL_LEVELS,
    ) -> Self:
        """The `ceil((n + 1) level)`-th smallest of the `n` held-out `|targets - mean| / std`.

        Other arguments are those of `VarianceScaling.fit`.

        Args:
            levels: the nominal levels.

        Returns:
            The calibrator. A radius is infinite where `n` is too small for its level, and where so
            many predictions are non-finite that no finite radius would do.
        """
        levels = check_levels(levels)
        points = prepare(dist, targets, where, axis)
        scores = _sorted_scores(points)
        number = scores.shape[0]
        # One infinite score behind the last: the answer when the rank exceeds the points at hand.
        padded = jnp.pad(scores, [(0, 1)] + [(0, 0)] * (scores.ndim - 1), constant_values=jnp.inf)
        ranks = jnp.asarray(_ranks(number, levels))[count(points)]
        index = jnp.minimum(ranks - 1, number)
        chosen = jnp.take_along_axis(padded, jnp.moveaxis(index, -1, 0), axis=0)
        return cls(jnp.expand_dims(jnp.moveaxis(chosen, 0, -1), points.axes), levels)

    def apply(self, dist: Predictive) -> Interval:
        """The intervals of new predictions.

        Args:
            dist: new predictions of the same model, with any number of examples.

        Returns:
            Lower and upper ends, levels on the last axis; nan where a prediction is not finite.
        """
        dist = dist.widen()
        shape = (*dist.batch_shape, len(self.levels))
        radius = check_calibrated_shape("radius", self.radius, shape)
        sound = dist.is_finite()
        mean = jnp.where(sound, dist.mean, jnp.nan)[..., None]
        half = dist.std[..., None] * radius
        return Interval(mean - half, mean + half, self.levels)


def _sorted_scores(points: Points) -> Array:
    """Standardised absolute residuals in rising order along a new first axis, masked ones last."""
    broken = jnp.isnan(points.z) | ~points.mask
    scores = jnp.where(broken, jnp.inf, jnp.abs(points.z))
    kept = [n for axis, n in enumerate(scores.shape) if axis not in points.axes]
    front = jnp.moveaxis(scores, points.axes, range(len(points.axes)))
    return jnp.sort(front.reshape(-1, *kept), axis=0)


def _ranks(number: int, levels: tuple[float, ...]) -> np.ndarray:
    """`ceil((n + 1) level)` for n = 0 .. number, exact: 10 * 0.9 must not become 10."""
    n = np.arange(number + 1, dtype=np.int64)[:, None]
    fractions = [Fraction(level).limit_denominator(100_000) for level in levels]
    numerators = np.array([f.numerator for f in fractions])
    denominators = np.array([f.denominator for f in fractions])
    return (-(-(n + 1) * numerators // denominators)).astype(np.int32)
