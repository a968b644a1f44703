"""What happens inside training: local variances, shares of the gradient and the doctor."""

from fisher8_jax.diagnostics._collapse import constant_share as constant_share
from fisher8_jax.diagnostics._collapse import dead_units as dead_units
from fisher8_jax.diagnostics._doctor import doctor as doctor
from fisher8_jax.diagnostics._findings import Diagnosis as Diagnosis
from fisher8_jax.diagnostics._findings import Finding as Finding
from fisher8_jax.diagnostics._gradients import top_gradient_share as top_gradient_share
from fisher8_jax.diagnostics._jacobian_variance import (
    local_jacobian_variance as local_jacobian_variance,
)
from fisher8_jax.diagnostics._kl_variance import local_kl_variance as local_kl_variance
from fisher8_jax.diagnostics._record import TrainingRecord as TrainingRecord
from fisher8_jax.diagnostics._trust_radius import batch_kl as batch_kl
from fisher8_jax.diagnostics._trust_radius import batch_kl_bound as batch_kl_bound
