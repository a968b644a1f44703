"""What a training writes down, and the doctor's record of it."""

import jax.numpy as jnp
import numpy as np
import optax
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.axes import append_axes
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.families import Family


def _step_kl(dist: Family, optimizer_state: ArrayTree) -> Array:
    """The KL divergence of the step, nan if the optimiser has no radius that measures it."""
    return jnp.asarray(
        optax.tree_utils.tree_get(optimizer_state, "quadratic_kl", jnp.nan), jnp.float32
    )


def _smallest_log_variance(dist: Family, optimizer_state: ArrayTree) -> Array:
    return jnp.min(2 * dist.log_std).astype(jnp.float32)


def _largest_log_variance(dist: Family, optimizer_state: ArrayTree) -> Array:
    return jnp.max(2 * dist.log_std).astype(jnp.float32)


DOCTOR_READOUTS = (
    ("step_kl", _step_kl),
    ("smallest_log_variance", _smallest_log_variance),
    ("largest_log_variance", _largest_log_variance),
)
"""What the doctor asks of every step, for the field `readouts` of a `Task`."""


def training_record(
    readouts: dict[str, np.ndarray],
    held_out_nll: np.ndarray,
    targets: np.ndarray,
    where: np.ndarray | None,
) -> TrainingRecord:
    """The record of one lane from its readouts, one array over the steps for each name."""
    present = np.ones(targets.shape, bool) if where is None else np.asarray(where)
    if present.shape != targets.shape:  # a mask of rows, targets with event axes
        present = np.broadcast_to(append_axes(present, targets.ndim), targets.shape)
    values = np.asarray(targets, np.float64)
    values = values[present & np.isfinite(values)]
    step_kl = readouts["step_kl"]
    return TrainingRecord(
        losses=readouts["loss"],
        validation_losses=held_out_nll if len(held_out_nll) else None,
        target_mean=float(values.mean()) if values.size else None,
        target_std=float(values.std()) if values.size else None,
        step_kl=None if np.isnan(step_kl).all() else step_kl,
        smallest_log_variance=readouts["smallest_log_variance"],
        largest_log_variance=readouts["largest_log_variance"],
    )
