"""Argument checks of the metrics; the wording of every error they can raise."""

from typing import Any

from fisher8_jax._checks import check_positions
from fisher8_jax.families import Predictive

Axis = int | tuple[int, ...] | None


def check_predictive(dist: Any) -> Predictive:
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


def _describe(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
