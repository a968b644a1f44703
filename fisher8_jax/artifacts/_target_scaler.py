"""Targets to unit scale and predictions back, with the variance scaled as it must be."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._checks import check_floating, check_host_array
from fisher8_jax._trees import register_tree
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Family


@register_tree
@dataclasses.dataclass(frozen=True)
class TargetScaler:
    """`scaled = (targets - shift) / scale`, one shift and scale per coordinate of a target row.

    A mean goes back by `scale * mean + shift`, a standard deviation by `scale * std`, a density
    gains the factor `1 / scale`. The family does this itself (`unscale`), so that nobody scales a
    variance by `scale`, or forgets to.

    Args:
        shift: subtracted from the targets, the shape of one row of targets.
        scale: positive, the same shape.

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

    shift: Any
    scale: Any

    @classmethod
    def fit(cls, targets: Any, *, where: Any = None, weights: Any = None) -> Self:
        """Mean and population standard deviation of the rows; a constant column keeps scale 1.

        Args:
            targets: rows first.
            where: boolean, the shape of the targets, False for missing ones, which may be nan.
            weights: one importance per row.

        Returns:
            The scaler, with float64 NumPy arrays: a large shift must not lose the last digits.
        """
        targets = check_host_array("targets", targets)
        if not jnp.issubdtype(targets.dtype, jnp.floating):
            raise TypeError(
                f"`targets` must be a floating-point array, got dtype {targets.dtype}. Convert it "
                "first, for instance `targets.astype(np.float32)`."
            )
        if targets.ndim == 0 or not len(targets):
            raise ValueError(f"`targets` must have at least one row, got shape {targets.shape}.")
        return cls(*_moments(targets, where, weights))

    def transform(self, targets: Array) -> Array:
        """`(targets - shift) / scale`."""
        targets = check_floating("targets", targets)
        return (targets - self._like(self.shift, targets)) / self._like(self.scale, targets)

    def inverse_transform(self, values: Array) -> Array:
        """`scale * values + shift`: means, quantiles and samples back to the units of the data."""
        values = check_floating("values", values)
        return self._like(self.scale, values) * values + self._like(self.shift, values)

    def unscale(self, dist: Any) -> Any:
        """A predicted distribution, or a mixture of several, in the units of the data."""
        if isinstance(dist, Mixture):
            return Mixture(jax.vmap(self.unscale)(dist.members))
        back = getattr(dist, "unscale", None)
        if not isinstance(dist, Family) or back is None:
            raise TypeError(
                "`dist` must be a distribution with a method `unscale(shift, scale)`, such as "
                f"`Gaussian`, or a `Mixture` of such, got {type(dist).__name__}."
            )
        mean = dist.mean
        return back(self._like(self.shift, mean), self._like(self.scale, mean))

    def _like(self, constant: Any, values: Array) -> Array:
        """`constant` in front of every row of `values`, without guessing axes."""
        shape = np.shape(constant)
        trailing = values.shape[values.ndim - len(shape) :] if len(shape) <= values.ndim else None
        if shape != trailing:
            raise ValueError(
                f"This scaler was made for rows of shape {shape}, got values of shape "
                f"{values.shape}. Their last axes must be the same."
            )
        return jnp.broadcast_to(jnp.asarray(constant, values.dtype), values.shape)


def _moments(targets: np.ndarray, where: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and std in float64, over the rows where the mask is True."""
    values = targets.astype(np.float64)
    factor = np.ones(values.shape)
    if weights is not None:
        row_weights = check_host_array("weights", weights).astype(np.float64)
        if row_weights.shape != (len(values),):
            raise ValueError(
                f"`weights` must hold one number per row, shape ({len(values)},), got "
                f"{row_weights.shape}."
            )
        factor = factor * row_weights.reshape(-1, *(1,) * (values.ndim - 1))
    if where is not None:
        mask = check_host_array("where", where).astype(bool)
        if mask.shape != values.shape:
            raise ValueError(
                f"`where` must have the shape of the targets, {values.shape}, got {mask.shape}."
            )
        values, factor = np.where(mask, values, 0), np.where(mask, factor, 0)
    total = factor.sum(axis=0)
    total = np.where(total == 0, 1, total)
    shift = (factor * values).sum(axis=0) / total
    variance = (factor * (values - shift) ** 2).sum(axis=0) / total
    # By its values, because rounding leaves a constant column a tiny spread.
    largest = np.max(np.where(factor > 0, values, -np.inf), axis=0)
    smallest = np.min(np.where(factor > 0, values, np.inf), axis=0)
    return shift, np.where(largest <= smallest, 1.0, np.sqrt(variance))
