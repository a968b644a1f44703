"""Argument checks of the estimator, with the wording of its errors."""

import numbers
from typing import Any

import numpy as np


def check_integer(name: str, value: Any, *, low: int = 1) -> int:
    """Rejects what is not an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"`{name}` must be an integer of at least {low}, got {value!r}.")
    return int(value)


def check_between(name: str, value: Any, low: float, high: float) -> float:
    """Rejects what does not lie strictly between two numbers."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not low < float(value) < high:
        raise ValueError(f"`{name}` must lie between {low:g} and {high:g}, got {value!r}.")
    return float(value)


def check_hidden(hidden: Any) -> tuple[int, ...]:
    """The widths of the hidden layers as a tuple."""
    widths = (hidden,) if isinstance(hidden, numbers.Integral) else hidden
    try:
        return tuple(check_integer("hidden_layer_sizes", width) for width in widths)
    except TypeError:
        raise ValueError(
            f"`hidden_layer_sizes` must be an integer or a sequence of integers, got {hidden!r}."
        ) from None


def check_some_targets(is_present: np.ndarray) -> None:
    """Rejects targets of which a column is missing altogether."""
    present = is_present.reshape(len(is_present), -1).sum(axis=0)
    if np.any(present == 0):
        column = int(np.argmin(present))
        raise ValueError(
            f"Column {column} of `y` has no target with a positive weight: all are nan or have a "
            "sample weight of 0. Leave the column out."
        )
