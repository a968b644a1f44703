"""Which targets a family can explain; behind `Family.in_support` and `Family.check_support`."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from jax.typing import ArrayLike

from fisher8_jax._internal.axes import append_axes


class Support(NamedTuple):
    """One kind of targets.

    Args:
        wanted: which values have a likelihood, as an error says it.
        contains: True for each value inside, for NumPy and JAX arrays alike; nan is outside.
        is_discrete: whether the cdf has jumps.
        is_ordered: whether a larger value means more, so that a mean is a value to expect.
    """

    wanted: str
    contains: Callable[[chex.Array], chex.Array]
    is_discrete: bool = False
    is_ordered: bool = True


def _is_finite(values: chex.Array) -> chex.Array:
    return (values > -np.inf) & (values < np.inf)


def _is_count(values: chex.Array) -> chex.Array:
    return (values >= 0) & (values % 1 == 0)


SUPPORTS = {
    "real": Support("finite numbers", _is_finite),
    "angles": Support("finite numbers, angles in radians", _is_finite, is_ordered=False),
    "positive": Support("positive finite numbers", lambda y: (y > 0) & (y < np.inf)),
    "unit interval": Support("numbers strictly between 0 and 1", lambda y: (y > 0) & (y < 1)),
    "closed unit interval": Support(
        "numbers from 0 to 1", lambda y: (y >= 0) & (y <= 1), is_discrete=True
    ),
    "counts": Support("whole numbers from 0", _is_count, is_discrete=True),
    "classes": Support(
        "whole numbers from 0 to the number of classes minus 1",
        _is_count,
        is_discrete=True,
        is_ordered=False,
    ),
}


def describe_outside(
    name: str, support: str, targets: ArrayLike, inside: ArrayLike, mask: ArrayLike | None
) -> str | None:
    """What is wrong with the targets that are not `inside`, None if nothing is.

    Args:
        name: of the family.
        support: a key of `SUPPORTS`.
        targets: observed values.
        inside: boolean, of their shape.
        mask: False for missing targets, of their shape or of their first axes; or None.
    """
    allowed = np.asarray(inside)
    if mask is not None:
        missing = ~np.asarray(mask)
        allowed = allowed | append_axes(missing, allowed.ndim)
    if allowed.all():
        return None
    first = tuple(int(i) for i in np.argwhere(~allowed)[0])
    return (
        f"`targets` of {name} must be {SUPPORTS[support].wanted}, got {int((~allowed).sum())} of "
        f"{allowed.size} that are not, the first at {first}: {np.asarray(targets)[first]}."
    )
