"""Fisher8 for JAX: networks that predict a mean and an honest uncertainty.

The method and what most training steps need are here; the rest lives in its room: `families`,
`losses`, `transforms`, `metrics`, `calibration`, `diagnostics`, and `plots`, which needs
matplotlib and is imported only when asked for.
"""

from fisher8_jax import calibration as calibration
from fisher8_jax import curvature as curvature
from fisher8_jax import diagnostics as diagnostics
from fisher8_jax import families as families
from fisher8_jax import losses as losses
from fisher8_jax import metrics as metrics
from fisher8_jax import transforms as transforms
from fisher8_jax._fisher8 import fisher8 as fisher8
from fisher8_jax._fisher8 import fisher8_nll as fisher8_nll
from fisher8_jax._microbatches import microbatched_value_and_grad as microbatched_value_and_grad
from fisher8_jax.curvature import network_curvature as network_curvature
from fisher8_jax.diagnostics import batch_kl as batch_kl
from fisher8_jax.diagnostics import batch_kl_bound as batch_kl_bound
from fisher8_jax.diagnostics import doctor as doctor
from fisher8_jax.families import Family as Family
from fisher8_jax.families import Gaussian as Gaussian
from fisher8_jax.metrics import evaluate as evaluate
from fisher8_jax.transforms import fisher8_optimizer as fisher8_optimizer
from fisher8_jax.transforms import scale_by_kl_radius as scale_by_kl_radius
