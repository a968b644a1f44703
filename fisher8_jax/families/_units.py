"""Shifts and scales of targets, laid along the predictions they belong to."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike


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
