"""Argument checks of the estimator, with the wording of its errors."""

from collections.abc import Sequence

import numpy as np

from fisher8_jax._checks import check_count, check_number


def check_setting(
    name: str, value: float, *, above: float | None = None, below: float | None = None
) -> float:
    """A number within its bounds as a float."""
    check_number(name, value, above=above, below=below)
    return float(value)


def check_flag(name: str, value: bool) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False, got {value!r}.")
    return bool(value)


def check_hidden(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """The widths of the hidden layers as a tuple."""
    widths = (hidden,) if isinstance(hidden, int | np.integer) else hidden
    try:
        return tuple(check_count("hidden_layer_sizes", width) for width in widths)
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
