"""How distributions look at a prompt and in a notebook, and how they are indexed."""

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any, TypeGuard

import chex
import jax
import numpy as np

from fisher8_jax._internal.html import table

_FEW = 6


def text_of(dist: Any) -> str:
    """One line: the class and its fields, with values where there are few of them."""
    fields = ", ".join(f"{name}={_text(value)}" for name, value in _fields(dist))
    return f"{type(dist).__name__}({fields})"


def html_of(dist: Any) -> str:
    """A table with one row per field: shape, dtype, least, median and largest value."""
    head = ("field", "shape", "dtype", "least", "median", "largest", "not finite")
    rows = [_cells(name, value) for name, value in _nested_fields(dist)]
    return table(head, rows, title=type(dist).__name__)


def _nested_fields(dist: Any, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Fields by name, those of a distribution inside another one after its name and a dot."""
    for name, value in _fields(dist):
        if dataclasses.is_dataclass(value):
            yield from _nested_fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fields(dist: Any) -> list[tuple[str, object]]:
    return [(field.name, getattr(dist, field.name)) for field in dataclasses.fields(dist)]


def _text(value: object) -> str:
    if not _is_array(value):
        return repr(value)
    kind = f"{value.dtype}{list(value.shape)}"
    numbers = _numbers(value)
    if numbers is None or not numbers.size:
        return kind
    if numbers.size <= _FEW:
        return np.array2string(numbers, separator=", ", precision=5, suppress_small=False)
    finite = numbers[np.isfinite(numbers)]
    bad = numbers.size - finite.size
    spread = f" in [{finite.min():.4g}, {finite.max():.4g}]" if finite.size else ""
    return kind + spread + (f", {bad} not finite" if bad else "")


def _cells(name: str, value: object) -> list[str]:
    if not _is_array(value):
        return [name, "", type(value).__name__, "", repr(value), "", ""]
    return [name, str(value.shape), str(value.dtype), *_summary(_numbers(value))]


def _summary(numbers: np.ndarray | None) -> list[str]:
    if numbers is None:
        return [""] * 4
    finite = numbers[np.isfinite(numbers)]
    bad = str(numbers.size - finite.size)
    if not finite.size:
        return ["", "", "", bad]
    return [f"{x:.4g}" for x in (finite.min(), np.median(finite), finite.max())] + [bad]


def _is_array(value: object) -> TypeGuard[chex.Array]:
    return isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _numbers(value: object) -> np.ndarray | None:
    """The values in float64, None while tracing and where other processes hold a part."""
    if isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):  # keys and complex numbers
        return None


def of_batch_axes(index: object, batch_shape: tuple[int, ...]) -> tuple[object, ...]:
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
