"""How distributions look at a prompt and in a notebook: values if they are few, else ranges."""

import dataclasses
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
