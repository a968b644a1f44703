"""Targets to unit scale and predictions back, with the variance scaled as it must be."""

import dataclasses
from typing import Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_floating, check_host_array, check_mask
from fisher8_jax._internal.trees import append_axes, register_tree
from fisher8_jax._points import check_predictive
from fisher8_jax.families import Predictive

SomePredictive = TypeVar("SomePredictive", bound=Predictive)


@register_tree
@dataclasses.dataclass(frozen=True)
class TargetScaler:
    """`scaled = (targets - shift) / scale`, one shift and scale per coordinate of a target row.

    A mean goes back by `scale * mean + shift`, a standard deviation by `scale * std`, a density
    gains the factor `1 / scale`. The family does this itself (`unscale`), so that nobody scales a
    variance by `scale`, or forgets to.

    Args:
        shift: subtracted from the targets, the shape of one row of targets. None for no shift,
            for families of positive targets.
        scale: positive, the shape of one row of targets.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.artifacts import TargetScaler
        >>> scaler = TargetScaler.fit(jnp.array([1.0, 3.0, 5.0, 7.0]))
        >>> scaler.transform(jnp.array([4.0]))
        Array([0.], dtype=float32)
        >>> dist = scaler.unscale(Gaussian(mean=jnp.zeros(1), log_variance=jnp.zeros(1)))
        >>> dist.mean, dist.variance
        (Array([4.], dtype=float32), Array([5.], dtype=float32))
    """

    shift: ArrayLike | None
    scale: ArrayLike

    @classmethod
    def fit(
        cls,
        targets: ArrayLike,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        shift: bool = True,
        skip_nan: bool = False,
    ) -> Self:
        """Mean and population standard deviation of the rows; a constant column keeps scale 1.

        Args:
            targets: rows first.
            where: boolean, the shape of the targets, False for missing ones, which may be nan.
            weights: one importance per row.
            shift: False leaves the targets where they are and divides by their root mean square:
                for Gamma, log-normal and Weibull predictions, whose targets must stay positive.
            skip_nan: whether nan marks a missing target. Otherwise nan raises.

        Returns:
            The scaler, with float64 NumPy arrays: a large shift must not lose the last digits.

        Example:
            >>> import jax.numpy as jnp
            >>> round(float(TargetScaler.fit(jnp.array([3.0, 4.0]), shift=False).scale), 4)
            3.5355
        """
        values = _check_targets(targets)
        present = _check_present(values, where, skip_nan)
        return cls(*_moments(values, present, _check_weights(values, weights), shift))

    def transform(self, targets: Array) -> Array:
        """`(targets - shift) / scale`."""
        targets = check_floating("targets", targets)
        if self.shift is not None:
            targets = targets - self._like(self.shift, targets)
        return targets / self._like(self.scale, targets)

    def inverse_transform(self, values: Array) -> Array:
        """`scale * values + shift`: means, quantiles and samples back to the units of the data."""
        values = check_floating("values", values)
        values = self._like(self.scale, values) * values
        return values if self.shift is None else values + self._like(self.shift, values)

    def unscale(self, dist: SomePredictive) -> SomePredictive:
        """A predicted distribution, or a mixture of several, in the units of the data.

        Counts, classes and shares have units of their own: there an error says so. Angles can be
        turned if the scale is 1.
        """
        check_predictive(dist)
        targets = jax.ShapeDtypeStruct(dist.batch_shape + dist.event_shape, dist.mean.dtype)
        shift = None if self.shift is None else self._like(self.shift, targets)
        is_one = not isinstance(self.scale, jax.core.Tracer) and np.all(np.equal(self.scale, 1))
        return dist.unscale(shift, None if is_one else self._like(self.scale, targets))

    def _like(self, constant: ArrayLike, values: Array | jax.ShapeDtypeStruct) -> Array:
        """`constant` in front of every row of `values`, without guessing axes."""
        shape = np.shape(constant)
        trailing = values.shape[values.ndim - len(shape) :] if len(shape) <= values.ndim else None
        if shape != trailing:
            raise ValueError(
                f"This scaler was made for rows of shape {shape}, got values of shape "
                f"{values.shape}. Their last axes must be the same."
            )
        return jnp.broadcast_to(jnp.asarray(constant, values.dtype), values.shape)


def _check_targets(targets: ArrayLike) -> np.ndarray:
    """Rows of floating-point targets in float64."""
    targets = check_host_array("targets", targets)
    if not jnp.issubdtype(targets.dtype, jnp.floating):
        raise TypeError(
            f"`targets` must be a floating-point array, got dtype {targets.dtype}. Convert it "
            "first, for instance `targets.astype(np.float32)`."
        )
    if targets.ndim == 0 or not len(targets):
        raise ValueError(f"`targets` must have at least one row, got shape {targets.shape}.")
    return targets.astype(np.float64)


def _check_present(values: np.ndarray, where: ArrayLike | None, skip_nan: bool) -> np.ndarray:
    """Which targets count; every one that does must be finite."""
    present = np.ones(values.shape, bool)
    if where is not None:
        present = np.asarray(check_mask("where", where, values.shape))
    if skip_nan:
        present = present & ~np.isnan(values)
    bad = present & ~np.isfinite(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"`targets` must be finite, got {values[first]} at {first} and {int(bad.sum())} such "
            "values in all. Pass `skip_nan=True` where nan marks a missing target, or `where`."
        )
    return present


def _check_weights(values: np.ndarray, weights: ArrayLike | None) -> np.ndarray:
    """One finite number that is not negative per row, in front of the axes of a row."""
    given = np.ones(len(values)) if weights is None else check_host_array("weights", weights)
    if not any(jnp.issubdtype(given.dtype, kind) for kind in (jnp.floating, jnp.integer)):
        raise TypeError(f"`weights` must be real numbers, got dtype {given.dtype}.")
    if given.shape != (len(values),):
        raise ValueError(
            f"`weights` must hold one number per row, shape ({len(values)},), got {given.shape}."
        )
    if not np.all(np.isfinite(given) & (given >= 0)):
        raise ValueError("`weights` must be finite and not negative.")
    return append_axes(given.astype(np.float64), values.ndim)


def _moments(
    values: np.ndarray, present: np.ndarray, weights: np.ndarray, shift: bool
) -> tuple[np.ndarray | None, np.ndarray]:
    """Weighted mean and std, over the rows that count; scale 1 where nothing varies."""
    values, factor = np.where(present, values, 0), np.where(present, weights, 0)
    total = factor.sum(axis=0)
    total = np.where(total == 0, 1, total)
    centre = (factor * values).sum(axis=0) / total if shift else np.zeros(values.shape[1:])
    variance = (factor * (values - centre) ** 2).sum(axis=0) / total
    # By its values, because rounding leaves a constant column a tiny spread.
    largest = np.max(np.where(factor > 0, values, -np.inf), axis=0)
    smallest = np.min(np.where(factor > 0, values, np.inf), axis=0)
    is_constant = (largest <= smallest) if shift else variance == 0
    return (centre if shift else None), np.where(is_constant, 1.0, np.sqrt(variance))
