"""Checks that only the losses need, worded like those of the whole package."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._checks import check_floating, check_mask
from fisher8_jax._fisher8 import check_family
from fisher8_jax.families import Family, Gaussian


def check_gaussian(name: str, dist: Any, method: str) -> None:
    """Rejects anything but a Gaussian, for methods whose formulas know only that likelihood."""
    check_family(f"`{name}`", dist)
    if not isinstance(dist, Gaussian):
        raise TypeError(
            f"`{name}` must be a `Gaussian` for `{method}`, got {type(dist).__name__}. For other "
            "likelihoods use `gaussian_nll`, `natural_gradient` or `fisher8`."
        )


def check_unit_interval(name: str, value: Any, *, open_ends: bool = False) -> None:
    """Rejects a concrete number outside [0, 1], or (0, 1); tracers pass."""
    if not isinstance(value, int | float | np.number):
        return
    inside = 0 < value < 1 if open_ends else 0 <= value <= 1
    if not inside:
        interval = "strictly between 0 and 1" if open_ends else "between 0 and 1"
        raise ValueError(f"`{name}` must lie {interval}, got {value}.")


def check_not_negative(name: str, value: Any) -> None:
    """Rejects a concrete number below 0; tracers pass."""
    if isinstance(value, int | float | np.number) and not value >= 0:
        raise ValueError(f"`{name}` must not be negative, got {value}.")


def check_hyperparameter(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns a scalar as it is and an array expanded to `shape`, both in `dtype`."""
    array = check_floating(name, jnp.asarray(value, dtype))
    return array if array.ndim == 0 else check_mask(name, array, shape, boolean=False)


def check_name(name: Any, known: Iterable[str]) -> None:
    """Rejects the name of an unknown loss and lists the known ones."""
    names = tuple(known)
    if name not in names:
        raise ValueError(f"`name` must be one of {', '.join(names)}; got {name!r}.")


def check_reference(reference: Any, dist: Gaussian) -> None:
    """Rejects references that are no Gaussian of the shape of the predictions."""
    check_gaussian("reference", reference, "trustable")
    if reference.batch_shape != dist.batch_shape:
        raise ValueError(
            f"`reference` must have the shape of the predictions, {dist.batch_shape}, got "
            f"{reference.batch_shape}. Take those of the batch: "
            "`gather_references(references, indices)`."
        )


def check_hyperparameter_names(name: str, given: Iterable[str], known: set[str]) -> None:
    """Rejects hyper-parameters that the loss does not have."""
    unknown = sorted(set(given) - known)
    if unknown:
        listing = ", ".join(sorted(known)) or "none"
        raise TypeError(f"`{name}` has no hyper-parameter {', '.join(unknown)}; it has: {listing}.")


def check_scalar_targets(dist: Family, method: str) -> None:
    """Rejects vector-valued likelihoods, for methods that need one variance per element."""
    if dist.event_shape != ():
        raise TypeError(
            f"`dist` must have scalar targets for `{method}`, got {type(dist).__name__} with event "
            f"shape {dist.event_shape}."
        )
