"""Targets: which ones a family explains, their units, and where a head starts for them."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.trees import append_axes


class Support(NamedTuple):
    """One kind of targets.

    Args:
        wanted: which values have a likelihood, as an error says it.
        contains: True for each value inside, for NumPy and JAX arrays alike; nan is outside.
        is_discrete: whether the cdf has jumps.
        is_ordered: whether a larger value means more, so that a mean is a value to expect.
    """

    wanted: str
    contains: Callable[[chex.Array], chex.Array]
    is_discrete: bool = False
    is_ordered: bool = True


def _is_finite(values: chex.Array) -> chex.Array:
    return (values > -np.inf) & (values < np.inf)


def _is_count(values: chex.Array) -> chex.Array:
    return (values >= 0) & (values % 1 == 0)


SUPPORTS = {
    "real": Support("finite numbers", _is_finite),
    "angles": Support("finite numbers, angles in radians", _is_finite, is_ordered=False),
    "positive": Support("positive finite numbers", lambda y: (y > 0) & (y < np.inf)),
    "unit interval": Support("numbers strictly between 0 and 1", lambda y: (y > 0) & (y < 1)),
    "closed unit interval": Support(
        "numbers from 0 to 1", lambda y: (y >= 0) & (y <= 1), is_discrete=True
    ),
    "counts": Support("whole numbers from 0", _is_count, is_discrete=True),
    "classes": Support(
        "whole numbers from 0 to the number of classes minus 1",
        _is_count,
        is_discrete=True,
        is_ordered=False,
    ),
}


def describe_outside(
    name: str, support: str, targets: ArrayLike, inside: ArrayLike, mask: ArrayLike | None
) -> str | None:
    """What is wrong with the targets that are not `inside`, None if nothing is.

    Args:
        name: of the family.
        support: a key of `SUPPORTS`.
        targets: observed values.
        inside: boolean, of their shape.
        mask: False for missing targets, of their shape or of their first axes; or None.
    """
    allowed = np.asarray(inside)
    if mask is not None:
        missing = ~np.asarray(mask)
        allowed = allowed | append_axes(missing, allowed.ndim)
    if allowed.all():
        return None
    first = tuple(int(i) for i in np.argwhere(~allowed)[0])
    return (
        f"`targets` of {name} must be {SUPPORTS[support].wanted}, got {int((~allowed).sum())} of "
        f"{allowed.size} that are not, the first at {first}: {np.asarray(targets)[first]}."
    )


def expand_units(
    shift: ArrayLike | None, scale: ArrayLike | None, like: Array
) -> tuple[Array, Array]:
    """`shift` (0 for None) and `scale` (1 for None) in the shape and dtype of `like`."""
    shift, scale = 0.0 if shift is None else shift, 1.0 if scale is None else scale
    return _expand("shift", shift, like), _expand("scale", scale, like)


def scale_alone(name: str, shift: ArrayLike | None, scale: ArrayLike | None, like: Array) -> Array:
    """`ln(scale)` like `like`, for families of positive targets, which a shift would leave."""
    if shift is not None and (isinstance(shift, jax.core.Tracer) or np.any(np.asarray(shift) != 0)):
        raise ValueError(
            f"`shift` must be None for {name}: its targets are positive, and a shift would leave "
            "the family. Scale them alone, `TargetScaler.fit(targets, shift=False)`, or model "
            "their logarithm by a `Gaussian`."
        )
    return jnp.log(expand_units(None, scale, like)[1])


def shift_alone(shift: ArrayLike | None, scale: ArrayLike | None, like: Array) -> Array:
    """`like + shift`, for angles, which a scale would tear apart."""
    if scale is not None and (isinstance(scale, jax.core.Tracer) or np.any(np.asarray(scale) != 1)):
        raise ValueError(
            "`scale` must be None for angles: half an angle is another direction. They can only "
            "be turned, `dist.unscale(shift, None)`."
        )
    return like + expand_units(shift, None, like)[0]


def _expand(name: str, value: ArrayLike, like: Array) -> Array:
    """`value` in the shape of `like`: its axes are the last ones, as long or of length 1."""
    value = jnp.asarray(value, like.dtype)
    trailing = like.shape[max(like.ndim - value.ndim, 0) :]
    if not all(m in (1, n) for m, n in itertools.zip_longest(value.shape, trailing)):
        raise ValueError(
            f"`{name}` must be a number or have the last axes of the targets, whose shape is "
            f"{like.shape}, got {value.shape}."
        )
    return jnp.broadcast_to(value, like.shape)


def safe_log(mean: np.ndarray) -> np.ndarray:
    """`ln(mean)`, at least `ln(0.001)`: targets may all be 0."""
    return np.log(np.maximum(mean, 1e-3))


def safe_logit(mean: np.ndarray) -> np.ndarray:
    """`ln(mean / (1 - mean))`, of a mean between 0.001 and 0.999."""
    inside = np.clip(mean, 1e-3, 1 - 1e-3)
    return np.log(inside) - np.log1p(-inside)
