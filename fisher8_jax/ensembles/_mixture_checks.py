"""Argument checks of ensembles, with the wording of their errors."""

import chex
import jax
import numpy as np

from fisher8_jax.families import Predictive


def check_members(members: object) -> int:
    """The number of stacked members, or an error that says how to stack them."""
    if not isinstance(members, Predictive):
        raise TypeError(
            "`members` must be one distribution with the members as first axis of its arrays, got "
            f"{type(members).__name__}. Predict with `jax.vmap` over stacked parameters, or use "
            "`stack_members`."
        )
    leaves = jax.tree.leaves(members)
    if not leaves or any(np.ndim(leaf) == 0 for leaf in leaves):
        raise ValueError(
            "`members` must have the members as first axis of its arrays, got a distribution of "
            "scalars. Use `stack_members([dist])` for a single one."
        )
    size = np.shape(leaves[0])[0]
    if size == 0:
        raise ValueError("`members` must hold at least one member, got an axis of length 0.")
    return size


def check_probability(probability: chex.Numeric) -> None:
    """Rejects concrete levels outside [0, 1]; tracers pass."""
    if isinstance(probability, jax.core.Tracer):
        return
    levels = np.asarray(probability, np.float64)
    if not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"`probability` must lie between 0 and 1, got {levels.tolist()}.")
