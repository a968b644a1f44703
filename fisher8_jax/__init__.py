"""Fisher8 for JAX: networks that predict a mean and an honest uncertainty."""

from fisher8_jax._fisher8 import fisher8 as fisher8
from fisher8_jax._fisher8 import fisher8_nll as fisher8_nll
from fisher8_jax._microbatches import microbatched_value_and_grad as microbatched_value_and_grad
from fisher8_jax.diagnostics.trust_radius import batch_kl as batch_kl
from fisher8_jax.diagnostics.trust_radius import batch_kl_bound as batch_kl_bound
from fisher8_jax.diagnostics.trust_radius import quadratic_batch_kl as quadratic_batch_kl
from fisher8_jax.diagnostics.trust_radius import step_between as step_between
from fisher8_jax.families import Family as Family
from fisher8_jax.families import Gaussian as Gaussian
