"""Which targets a family can explain; behind `Family.in_support` and `Family.check_support`."""

import jax.numpy as jnp
import numpy as np
from jax import Array

DISCRETE = ("counts", "classes", "closed unit interval")

WANTED = {
    "real": "finite numbers",
    "angles": "finite numbers, angles in radians",
    "positive": "positive finite numbers",
    "unit interval": "numbers strictly between 0 and 1",
    "closed unit interval": "numbers from 0 to 1",
    "counts": "whole numbers from 0",
    "classes": "whole numbers from 0 to the number of classes minus 1",
}


def is_inside(support: str, targets: Array, *, num_classes: int) -> Array:
    """True for every target in the named support."""
    is_whole = targets == jnp.floor(targets)
    conditions: dict[str, Array] = {
        "real": jnp.isfinite(targets),
        "angles": jnp.isfinite(targets),
        "positive": targets > 0,
        "unit interval": (targets > 0) & (targets < 1),
        "closed unit interval": (targets >= 0) & (targets <= 1),
        "counts": (targets >= 0) & is_whole,
        "classes": (targets >= 0) & is_whole & (targets < num_classes),
    }
    return jnp.isfinite(targets) & conditions[support]


def raise_if_outside(
    name: str, support: str, targets: Array, inside: Array, mask: Array | None
) -> None:
    """Names the first target outside the support that `mask` does not leave out."""
    allowed = np.asarray(inside)
    if mask is not None:
        missing = ~np.asarray(mask)
        allowed = allowed | missing.reshape(missing.shape + (1,) * (allowed.ndim - missing.ndim))
    if allowed.all():
        return
    first = tuple(int(i) for i in np.argwhere(~allowed)[0])
    raise ValueError(
        f"`targets` of {name} must be {WANTED[support]}, got {int((~allowed).sum())} of "
        f"{allowed.size} that are not, the first at {first}: {np.asarray(targets)[first]}. Pass "
        "`where` to mark missing targets, or choose a family whose support fits."
    )
