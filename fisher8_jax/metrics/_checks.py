"""Argument checks of the metrics; the wording of every error they can raise."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fisher8_jax.metrics._predictive import Predictive

Axis = int | tuple[int, ...] | None


def check_predictive(dist: Any) -> Predictive:
    """Returns `dist`, or says that a distribution was expected."""
    # Looked up on the class: an instance check of the protocol would compute every property.
    methods = ("nll", "cdf", "quantile", "batch_shape", "event_shape")
    if not all(hasattr(type(dist), name) for name in methods):
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
            f"shape {dist.event_shape}. Score the marginals instead, for a multivariate Gaussian "
            "`Gaussian(dist.mean, jnp.log(dist.variance))`."
        )


def check_reduced_axes(axis: Axis, batch_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns `axis` as non-negative positions in `batch_shape`, all of them for None."""
    ndim = len(batch_shape)
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -ndim <= a < ndim:
            raise ValueError(
                f"`axis` {axis} does not exist in predictions of shape {batch_shape}. Pass the "
                "axis (or axes) of the examples; every other axis keeps a value of its own. A "
                "single prediction without a batch axis is `axis=()`."
            )
    positions = tuple(a % ndim for a in axes)
    if len(set(positions)) != len(positions):
        raise ValueError(f"`axis` {axis} names the same axis twice.")
    return positions


def check_levels(levels: Any, name: str = "levels") -> tuple[float, ...]:
    """Returns `levels` as a tuple of numbers strictly between 0 and 1."""
    if isinstance(levels, float | int):
        raise TypeError(f"`{name}` must be a sequence, got {levels!r}. Pass `({levels!r},)`.")
    levels = tuple(float(level) for level in _as_sequence(name, levels))
    outside = [level for level in levels if not 0 < level < 1]
    if outside:
        raise ValueError(
            f"`{name}` must lie strictly between 0 and 1, got {outside[0]}. "
            "A level of 95 % is written 0.95."
        )
    return levels


def check_count(name: str, value: Any) -> int:
    """Returns a positive integer that is known while tracing."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
    return int(value)


def _as_sequence(name: str, values: Any) -> Sequence[float]:
    try:
        values = tuple(values)
    except TypeError as error:
        raise TypeError(f"`{name}` must be a sequence of numbers, got {values!r}.") from error
    if not values:
        raise ValueError(f"`{name}` must hold at least one level, got none.")
    return values


def _describe(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
