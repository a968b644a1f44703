"""What happens inside training: local variances, gradient readouts and the doctor."""

from fisher8_jax.diagnostics._collapse import constant_share as constant_share
from fisher8_jax.diagnostics._collapse import dead_units as dead_units
from fisher8_jax.diagnostics._collapse import units_without_gradient as units_without_gradient
from fisher8_jax.diagnostics._doctor import doctor as doctor
from fisher8_jax.diagnostics._findings import Diagnosis as Diagnosis
from fisher8_jax.diagnostics._findings import Finding as Finding
from fisher8_jax.diagnostics._gradients import mean_to_scale_ratio as mean_to_scale_ratio
from fisher8_jax.diagnostics._gradients import saturated_share as saturated_share
from fisher8_jax.diagnostics._gradients import top_gradient_share as top_gradient_share
from fisher8_jax.diagnostics._jacobian_variance import (
    local_jacobian_variance as local_jacobian_variance,
)
from fisher8_jax.diagnostics._kl_variance import local_kl_variance as local_kl_variance
from fisher8_jax.diagnostics._record import TrainingRecord as TrainingRecord
from fisher8_jax.diagnostics._snapshots import along_training as along_training
from fisher8_jax.diagnostics._trust_radius import batch_kl as batch_kl
from fisher8_jax.diagnostics._trust_radius import batch_kl_bound as batch_kl_bound
from fisher8_jax.diagnostics._trust_radius import quadratic_batch_kl as quadratic_batch_kl
from fisher8_jax.diagnostics._trust_radius import step_between as step_between
