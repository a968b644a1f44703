"""Indexing of distributions: an index speaks of the batch, never of a parameter's own axes."""

import operator
from typing import Any

import numpy as np


def of_batch_axes(index: Any, batch_shape: tuple[int, ...]) -> tuple[Any, ...]:
    """`index` as a tuple without an ellipsis, checked to name no more axes than the batch has."""
    parts = index if isinstance(index, tuple) else (index,)
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("An index may hold one `...` at most.")
    used = sum(_axes_of(part) for part in parts)
    if used > len(batch_shape):
        raise IndexError(
            f"The index {index} names {used} axes, but the batch shape is {batch_shape}. Axes of a "
            "parameter or of a target are not indexed; `dist.marginals()` gives one distribution "
            "per coordinate."
        )
    if ellipses:
        fill = (slice(None),) * (len(batch_shape) - used)
        parts = (*parts[: ellipses[0]], *fill, *parts[ellipses[0] + 1 :])
    _check_bounds(parts, batch_shape)
    return parts


def _axes_of(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    is_mask = getattr(part, "dtype", None) == np.bool_
    return np.ndim(part) if is_mask else 1


def _check_bounds(parts: tuple[Any, ...], batch_shape: tuple[int, ...]) -> None:
    """Rejects a number beyond the end, which JAX would silently move to the last entry."""
    axis = 0
    for part in parts:
        try:
            number = operator.index(part)
        except TypeError:  # a slice, an array, a traced number
            axis += _axes_of(part)
            continue
        size = batch_shape[axis]
        if not -size <= number < size:
            raise IndexError(f"Index {number} is out of bounds for axis {axis} of length {size}.")
        axis += 1
