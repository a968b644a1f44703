"""Predictions and targets that are scored or calibrated with, and means over them.

Every metric is a function of means over the points; this file takes those means.

A `Statistic` holds one or more numbers per element and the function that turns their means into the
metric: for the RMSE the squared residual and the square root, for a histogram one indicator per bin
and the frequencies. This gives all metrics the same mask and the same axes, and makes the bootstrap
a matrix product: a resampled mean is a weighted mean of the same numbers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.checks import check_mask, check_positions
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Predictive

Axis = int | tuple[int, ...] | None

# The nominal levels that intervals have unless others are given; the second is one standard
# deviation of a Gaussian.
INTERVAL_LEVELS = (0.5, math.erf(1 / math.sqrt(2)), 0.9, 0.95)


class Statistic(NamedTuple):
    """Numbers per element, of shape `batch_shape + (k,)`, and the metric as a function of means."""

    elements: Array
    finish: Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class Points:
    """Checked predictions and targets in at least float32, with mask and reduced axes."""

    dist: Predictive
    targets: Array
    mask: Array
    axes: tuple[int, ...]

    @functools.cached_property
    def finite(self) -> Array:
        """Where the prediction is finite."""
        return self.dist.is_finite()

    @functools.cached_property
    def pit(self) -> Array:
        """The predicted cdf at the targets; nan where the prediction is not finite."""
        return self.or_nan(self.dist.cdf(self.targets))

    @functools.cached_property
    def z(self) -> Array:
        """Residuals in predicted standard deviations; nan where the prediction is not finite."""
        return self.or_nan(self.dist.z_score(self.targets))

    def or_nan(self, values: Array) -> Array:
        """`values`, nan where the prediction is not finite, so that no mean hides it."""
        return jnp.where(self.finite, values, jnp.nan)

    def share(self, happened: Array) -> Array:
        """Zeros and ones of shape `batch_shape + (k,)` to be averaged; nan at a nan target."""
        missing = jnp.isnan(self.targets)[..., None]
        dtype = jnp.promote_types(self.targets.dtype, self.dist.mean.dtype)
        return jnp.where(missing, jnp.nan, happened.astype(dtype))


def prepare(
    dist: Predictive, targets: Array, where: Array | None, axis: Axis, *, scalar: bool = True
) -> Points:
    """Checks the arguments that all metrics share."""
    dist = check_predictive(dist).widen()
    if scalar:
        check_scalar(dist)
    axes = check_reduced_axes(axis, dist.batch_shape)
    targets = widen_targets(dist.check_targets(targets))
    if where is None:
        return Points(dist, targets, jnp.ones(dist.batch_shape, bool), axes)
    mask = check_mask("where", where, dist.batch_shape)
    # A nan target would be masked out of the value but not out of its gradient.
    harmless = lax.stop_gradient(dist.mean)
    mask_of_targets = append_axes(mask, mask.ndim + len(dist.event_shape))
    return Points(dist, jnp.where(mask_of_targets, targets, harmless), mask, axes)


def widen_targets(targets: Array) -> Array:
    """Half-precision targets in float32; whole numbers stay what they are."""
    is_floating = jnp.issubdtype(targets.dtype, jnp.floating)
    return at_least_float32(targets) if is_floating else targets


def reduce(points: Points, statistic: Statistic) -> Array:
    """The metric over `points.axes`; nan where no element is left."""
    rows, counts = row_sums(points, statistic.elements)
    return statistic.finish(jnp.sum(rows, axis=0) / jnp.sum(counts, axis=0))


def row_sums(points: Points, elements: Array) -> tuple[Array, Array]:
    """Masked sums and counts with all reduced axes but the first one summed, the first in front.

    The first reduced axis is the one that the bootstrap resamples, so it is kept here.
    """
    mask = append_axes(points.mask, elements.ndim)
    masked = jnp.where(mask, elements, 0)
    first, *others = points.axes if points.axes else (None,)
    if first is None:
        return masked[None], mask[None].astype(elements.dtype)
    kept = first - sum(other < first for other in others)

    def collapse(array: Array) -> Array:
        return jnp.moveaxis(jnp.sum(array, axis=tuple(others)), kept, 0)

    return collapse(masked), collapse(mask.astype(elements.dtype))


def count(points: Points, happened: Array | None = None) -> Array:
    """How many unmasked elements there are, or for how many of them `happened` is true."""
    mask = points.mask if happened is None else points.mask & happened
    return jnp.sum(mask, axis=points.axes, dtype=jnp.int32)


def plain_mean(values: Array) -> Statistic:
    """The statistic whose metric is the mean of `values`."""
    return Statistic(values[..., None], lambda means: means[..., 0])


def mean_per_level(values: Array) -> Statistic:
    """The statistic of `values` with levels on their last axis: one mean per level."""
    return Statistic(values, lambda means: means)


def root_mean_square(points: Points, values: Array) -> Statistic:
    """The root of the mean square, with squares that neither overflow nor vanish."""
    mask = append_axes(points.mask, values.ndim)
    magnitude = jnp.where(mask, jnp.abs(values), 0)
    largest = lax.stop_gradient(jnp.max(magnitude, axis=points.axes, keepdims=True, initial=0))
    scale = jnp.where((largest == 0) | ~jnp.isfinite(largest), 1, largest)
    squares = jnp.square(values / scale)
    per_target = jnp.squeeze(scale, axis=points.axes)
    return Statistic(squares[..., None], lambda means: per_target * jnp.sqrt(means[..., 0]))


def check_predictive(dist: object) -> Predictive:
    """Returns `dist`, or says that a distribution was expected."""
    if not isinstance(dist, Predictive):
        raise TypeError(
            "`dist` must be a predicted distribution, for instance "
            f"`Gaussian(mean, log_variance)`, got {_describe(dist)}."
        )
    return dist


def check_scalar(dist: Predictive) -> None:
    """Rejects joint distributions over several targets, whose cdf is not a calibration curve."""
    if dist.event_shape != ():
        raise ValueError(
            "This metric needs one scalar distribution per target (event shape ()), got event "
            f"shape {dist.event_shape}. Score the coordinates instead: `dist.marginals()`."
        )


def check_reduced_axes(axis: Axis, batch_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns `axis` as non-negative positions in `batch_shape`, all of them for None."""
    if axis is None:
        return tuple(range(len(batch_shape)))
    return check_positions(
        axis,
        batch_shape,
        hint="Pass the axis (or axes) of the examples; every other axis keeps a value of its own. "
        "A single prediction without a batch axis is `axis=()`.",
    )


def check_calibrated_shape(name: str, fitted: Array, batch_shape: tuple[int, ...]) -> Array:
    """Returns `fitted`, of a calibrator, broadcast to new predictions of the same targets."""
    shape = fitted.shape
    fits = len(shape) == len(batch_shape) and all(
        m in (1, n) for m, n in zip(shape, batch_shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"The calibrator was fitted for targets of shape {shape} (1 on the axes of the "
            f"examples: `{name}`), which does not fit predictions of shape {batch_shape}. Only the "
            "number of examples may differ between `fit` and `apply`."
        )
    return jnp.broadcast_to(fitted, batch_shape)


def _describe(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
