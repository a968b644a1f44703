"""Argument checks of the diagnostics, worded as in `fisher8_jax._internal.checks`."""

import chex
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_floating, check_host_array
from fisher8_jax.families import Family


def check_has_batch(batch_shape: tuple[int, ...], *, may_be_empty: bool = False) -> None:
    """Rejects a single prediction where a batch is needed."""
    if not batch_shape or (batch_shape[0] == 0 and not may_be_empty):
        raise ValueError(
            "`dist` must hold a batch of predictions along its first axis, got batch shape "
            f"{batch_shape}. Predict all points at once, for instance with `jax.vmap`."
        )


def check_inputs(inputs: chex.Array) -> Array:
    """Returns `inputs` as a floating-point array with at least one point along axis 0."""
    inputs = check_floating("inputs", inputs)
    if inputs.ndim == 0 or inputs.shape[0] == 0:
        raise ValueError(
            f"`inputs` must hold one point per row, got shape {inputs.shape}. "
            "Pass an array of shape (points,) or (points, ...) with at least one point."
        )
    return inputs


def check_same_length(dist: Family, inputs: Array) -> None:
    """Says that predictions and inputs must be of the same points."""
    check_has_batch(dist.batch_shape)
    if dist.batch_shape[0] != inputs.shape[0]:
        raise ValueError(
            f"`dist` must hold one prediction per input: its batch shape is {dist.batch_shape}, "
            f"but there are {inputs.shape[0]} inputs. Predict at the same points, in order."
        )


def check_rows(inputs: ArrayLike, number: int) -> np.ndarray:
    """Returns `inputs` as a table in double precision, one row for each of `number` points."""
    values = check_host_array("inputs", inputs).astype(np.float64)
    if values.ndim == 0 or len(values) != number:
        raise ValueError(
            f"`inputs` must hold one row per prediction, {number} of them, got shape "
            f"{values.shape}."
        )
    return values.reshape(number, -1)
