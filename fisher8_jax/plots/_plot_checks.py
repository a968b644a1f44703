"""Argument checks of the plots; what is drawn is brought to NumPy here."""

import chex
import numpy as np

from fisher8_jax._internal.checks import check_host_array, check_mask, check_targets
from fisher8_jax.families import Predictive


def check_one_target(dist: Predictive) -> int:
    """The number of points, or how to select one target of several."""
    shape = dist.batch_shape + dist.event_shape
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(
            f"`dist` must hold the predictions of one target, shape (points,), got {shape}. Select "
            "a target first, for instance `jax.tree.map(lambda leaf: leaf[:, 0], dist)`."
        )
    return shape[0]


def drawn_targets(
    dist: Predictive, targets: chex.Array, where: chex.Array | None
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and the mask of points to draw: not masked, and with a finite target."""
    number = check_one_target(dist)
    values = np.asarray(check_targets(targets, (number,)), np.float64)
    mask = np.isfinite(values)
    if where is not None:
        mask = mask & np.asarray(check_mask("where", where, (number,)))
    if not mask.any():
        raise ValueError("`where` leaves no point with a finite target to draw.")
    return values, mask


def check_inputs_1d(inputs: chex.Array, number: int, name: str = "inputs") -> np.ndarray:
    """One number per prediction as a vector; (points, 1) is accepted."""
    values = check_host_array(name, inputs).astype(np.float64)
    if values.shape == (number, 1):
        values = values[:, 0]
    if values.shape != (number,):
        raise ValueError(
            f"`{name}` must hold one number per prediction, shape ({number},), got {values.shape}. "
            "With several inputs, select the one to draw against."
        )
    return values
