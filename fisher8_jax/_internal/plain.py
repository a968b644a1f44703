"""Numbers as JSON knows them."""

import math

import numpy as np
from jax.typing import ArrayLike

Plain = float | int | list["Plain"] | None


def json_number(value: float) -> float | None:
    """A Python float, or None where JSON knows no number."""
    number = float(value)
    return number if math.isfinite(number) else None


def json_numbers(values: ArrayLike) -> Plain:
    """A number, or nested lists of numbers; whole numbers stay whole."""
    array = np.asarray(values)
    if array.ndim:
        return [json_numbers(part) for part in array]
    is_whole = np.issubdtype(array.dtype, np.integer)
    return int(array) if is_whole else json_number(float(array))
