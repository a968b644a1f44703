"""What a training logs at each step, and the doctor's record of it."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.axes import append_axes
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.training._data import Data
from fisher8_jax.training._loop import LoggedMetrics
from fisher8_jax.training._method import StepInfo


def _step_kl(info: StepInfo) -> Array:
    return info.step_kl


def _smallest_log_variance(info: StepInfo) -> Array:
    return jnp.min(2 * info.dist.log_std).astype(jnp.float32)


def _largest_log_variance(info: StepInfo) -> Array:
    return jnp.max(2 * info.dist.log_std).astype(jnp.float32)


DIAGNOSTIC_METRICS: LoggedMetrics = (
    ("step_kl", _step_kl),
    ("smallest_log_variance", _smallest_log_variance),
    ("largest_log_variance", _largest_log_variance),
)
"""What the doctor asks of every step besides the loss."""


def training_record(
    metrics: dict[str, np.ndarray], validation_nll: np.ndarray, data: Data
) -> TrainingRecord:
    """The record of one run from its metrics, one array over the steps for each name."""
    targets = np.asarray(data.targets, np.float64)
    present = np.ones(targets.shape, bool) if data.where is None else np.asarray(data.where)
    if present.shape != targets.shape:  # a mask of rows, targets with event axes
        present = np.broadcast_to(append_axes(present, targets.ndim), targets.shape)
    values = targets[present & np.isfinite(targets)]
    step_kl = metrics["step_kl"]
    return TrainingRecord(
        losses=metrics["loss"],
        validation_losses=validation_nll if len(validation_nll) else None,
        target_mean=float(values.mean()) if values.size else None,
        target_std=float(values.std()) if values.size else None,
        step_kl=None if np.isnan(step_kl).all() else step_kl,
        smallest_log_variance=metrics["smallest_log_variance"],
        largest_log_variance=metrics["largest_log_variance"],
    )
