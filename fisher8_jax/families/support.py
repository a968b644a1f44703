"""Which targets a family can explain, checked once before training."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._checks import check_mask
from fisher8_jax.families.contract import Family

_WANTED = {
    "real": "finite numbers",
    "positive": "positive finite numbers",
    "unit interval": "numbers strictly between 0 and 1",
    "closed unit interval": "numbers from 0 to 1",
    "counts": "whole numbers from 0",
    "classes": "whole numbers from 0 to the number of classes minus 1",
}


def in_support(dist: Family, targets: Array) -> Array:
    """True for every target that `dist` gives a likelihood; works under `jit`.

    Args:
        dist: a distribution of the family in question.
        targets: shape `dist.batch_shape + dist.event_shape`.

    Returns:
        A boolean array of the shape of the targets.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import Poisson
        >>> in_support(Poisson(jnp.zeros(3)), jnp.array([0.0, 2.5, -1.0]))
        Array([ True, False, False], dtype=bool)
    """
    targets = dist.check_targets(targets)
    is_whole = targets == jnp.floor(targets)
    conditions: dict[str, Array] = {
        "real": jnp.isfinite(targets),
        "positive": targets > 0,
        "unit interval": (targets > 0) & (targets < 1),
        "closed unit interval": (targets >= 0) & (targets <= 1),
        "counts": (targets >= 0) & is_whole,
        "classes": (targets >= 0) & is_whole & (targets < getattr(dist, "num_classes", 0)),
    }
    return jnp.isfinite(targets) & conditions[dist.support]


def check_support(dist: Family, targets: Any, *, where: Any = None) -> None:
    """Raises where targets have no likelihood; call it once on real data, outside `jit`.

    Inside a compiled step values cannot be looked at: there a target outside the support has an
    infinite NLL and a nan gradient.

    Args:
        dist: a distribution of the family in question.
        targets: shape `dist.batch_shape + dist.event_shape`.
        where: boolean, False for missing targets, which may hold anything.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import Gamma
        >>> check_support(Gamma(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 0.0]))
        Traceback (most recent call last):
        ...
        ValueError: `targets` of Gamma must be positive finite numbers, got 1 of 2 that are not, ...
    """
    inside = np.asarray(in_support(dist, targets))
    if where is not None:
        mask = np.asarray(check_mask("where", where, dist.batch_shape))
        mask = mask.reshape(mask.shape + (1,) * (inside.ndim - mask.ndim))
        inside = inside | ~mask
    if inside.all():
        return
    first = tuple(int(i) for i in np.argwhere(~inside)[0])
    raise ValueError(
        f"`targets` of {type(dist).__name__} must be {_WANTED[dist.support]}, got "
        f"{int((~inside).sum())} of {inside.size} that are not, the first at {first}: "
        f"{np.asarray(targets)[first]}. Pass `where` to mark missing targets, or choose a family "
        "whose support fits."
    )
