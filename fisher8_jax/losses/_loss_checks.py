"""Checks that only the losses need, worded like those of the whole package."""

from collections.abc import Iterable

import chex
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_floating, check_weights
from fisher8_jax.families import Family, Gaussian


def check_gaussian(name: str, dist: Family, method: str) -> None:
    """Rejects anything but a Gaussian, for methods whose formulas know only that likelihood."""
    check_family(f"`{name}`", dist)
    if not isinstance(dist, Gaussian):
        raise TypeError(
            f"`{name}` must be a `Gaussian` for `{method}`, got {type(dist).__name__}. For other "
            "likelihoods use `losses.nll`, `natural_gradient` or `fisher8`."
        )


def check_hyperparameter(
    name: str, value: chex.Numeric, shape: tuple[int, ...], dtype: DTypeLike
) -> Array:
    """Returns a scalar as it is and an array expanded to `shape`, both in `dtype`."""
    array = check_floating(name, jnp.asarray(value, dtype))
    return array if array.ndim == 0 else check_weights(name, array, shape)


def check_reference(reference: Gaussian, dist: Gaussian) -> None:
    """Rejects references that are no Gaussian of the shape of the predictions."""
    check_gaussian("reference", reference, "trustable")
    if reference.batch_shape != dist.batch_shape:
        raise ValueError(
            f"`reference` must have the shape of the predictions, {dist.batch_shape}, got "
            f"{reference.batch_shape}. Take those of the batch: `references[indices]`."
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
