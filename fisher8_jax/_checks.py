"""Argument checks and the wording of every error a user can meet.

Every message names the argument, what was expected, what came, and the likely fix. All checks look
at shapes and dtypes only, so they run while tracing and cost nothing in a compiled step.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._numerics import AxisName


def check_floating(name: str, array: Any) -> Array:
    """Returns `array` as a JAX array, or says that it must be floating point."""
    array = _as_array(name, array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"`{name}` must be a floating-point array, got dtype {array.dtype}. "
            f"Convert it first, for instance `{name}.astype(jnp.float32)`."
        )
    return array


def check_same_shape(arrays: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the one shape that all arrays share, or lists the shapes that differ."""
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    first, *others = shapes.values()
    if any(shape != first for shape in others):
        listing = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"All parameters of a distribution must have the same shape, got {listing}. "
            "Expand the smaller one explicitly with `jnp.broadcast_to`."
        )
    return first


def check_targets(targets: Any, shape: tuple[int, ...], name: str = "targets") -> Array:
    """Returns `targets` as an array of exactly the shape of the predictions."""
    targets = _as_array(name, targets)
    if targets.shape == shape:
        return targets
    hint = "Nothing is broadcast here, because a silent (n, n) loss is a common bug."
    if (*targets.shape, 1) == shape:
        hint = f"Drop the last axis of the predictions (`[..., 0]`) or pass `{name}[..., None]`."
    elif targets.shape == (*shape, 1):
        hint = f"Pass `{name}[..., 0]`."
    raise ValueError(
        f"`{name}` must have the shape of the predictions, {shape}, got {targets.shape}. {hint}"
    )


def check_mask(name: str, mask: Any, shape: tuple[int, ...], *, boolean: bool = True) -> Array:
    """Returns `mask` expanded to `shape`; every axis must match or have length 1."""
    mask = _as_array(name, mask)
    if boolean and mask.dtype != jnp.bool_:
        raise TypeError(
            f"`{name}` must be boolean, got dtype {mask.dtype}. Use for instance `{name} != 0`, "
            "or pass importance weights as `weights`."
        )
    fits = mask.ndim == len(shape) and all(
        m in (1, n) for m, n in zip(mask.shape, shape, strict=True)
    )
    if not fits:
        expand = f"{name}[(...,) + (None,) * {len(shape) - mask.ndim}]"
        hint = f" Add the missing axes: `{expand}`." if 0 < mask.ndim < len(shape) else ""
        raise ValueError(
            f"`{name}` must have the shape of the predictions, {shape}, with axes of length 1 "
            f"where it does not vary, got {mask.shape}.{hint}"
        )
    return jnp.broadcast_to(mask, shape)


def check_axis(
    axis: int | tuple[int, ...],
    batch_shape: tuple[int, ...],
    *,
    axis_name: AxisName | None,
    needs_batch: bool = True,
) -> tuple[int, ...]:
    """Returns `axis` as non-negative positions in `batch_shape`."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = len(batch_shape)
    for a in axes:
        if not -ndim <= a < ndim:
            raise ValueError(
                f"`axis` {axis} does not exist in predictions of shape {batch_shape}. Fisher8 "
                "divides by a norm over the batch, so it needs one: apply it outside a "
                "per-example function, or inside `jax.vmap(..., axis_name='batch')` with "
                "`axis=(), axis_name='batch'`, or pass `normalize=False`."
            )
    if needs_batch and not axes and axis_name is None:
        raise ValueError(
            "`axis=()` leaves nothing to normalise over. Pass the batch axis (`axis=0`), the "
            "`axis_name` of an enclosing vmap, or `normalize=False`."
        )
    positions = tuple(a % ndim for a in axes)
    if len(set(positions)) != len(positions):
        raise ValueError(f"`axis` {axis} names the same axis twice.")
    return positions


def check_axis_name_is_bound(axis_name: AxisName) -> None:
    """Says which transformation is missing when `axis_name` is not bound."""
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    for name in names:
        try:
            lax.axis_index(name)
        except NameError as error:
            raise ValueError(
                f"`axis_name` {name!r} is not bound here. It must be the name given to an "
                "enclosing `jax.vmap(axis_name=...)`, `jax.pmap` or `jax.shard_map`. Under plain "
                "`jax.jit` with sharded arrays leave it out: the norm is already global."
            ) from error


def check_positive(name: str, value: Any) -> None:
    """Rejects a concrete number that is not positive; tracers pass."""
    if isinstance(value, int | float | np.number) and not value > 0:
        raise ValueError(f"`{name}` must be positive, got {value}.")


def _as_array(name: str, array: Any) -> Array:
    if isinstance(array, Array):
        return array
    try:
        return jnp.asarray(array)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be an array, got {type(array).__name__}.") from error
