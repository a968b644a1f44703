"""What happens inside training: shares of the gradient, collapsed networks and the doctor."""

from fisher8_jax.diagnostics._doctor import doctor as doctor
from fisher8_jax.diagnostics._findings import Diagnosis as Diagnosis
from fisher8_jax.diagnostics._findings import Finding as Finding
from fisher8_jax.diagnostics._findings import TrainingRecord as TrainingRecord
from fisher8_jax.diagnostics._shares import top_gradient_share as top_gradient_share
