"""Optax transformations: the KL radius, the default optimizers, averages of parameters."""

from fisher8_jax.optimizers._average import AverageState as AverageState
from fisher8_jax.optimizers._average import track_average as track_average
from fisher8_jax.optimizers._descent import decay_schedule as decay_schedule
from fisher8_jax.optimizers._descent import descend as descend
from fisher8_jax.optimizers._fisher8_optimizer import default_max_change as default_max_change
from fisher8_jax.optimizers._fisher8_optimizer import default_max_kl as default_max_kl
from fisher8_jax.optimizers._fisher8_optimizer import fisher8_optimizer as fisher8_optimizer
from fisher8_jax.optimizers._kl_radius import KLRadiusState as KLRadiusState
from fisher8_jax.optimizers._kl_radius import scale_by_kl_radius as scale_by_kl_radius
from fisher8_jax.optimizers._measured_steps import MeasuredLength as MeasuredLength
from fisher8_jax.optimizers._network_optimizer import network_max_kl as network_max_kl
from fisher8_jax.optimizers._network_optimizer import network_optimizer as network_optimizer
from fisher8_jax.optimizers._shared_updates import shrink_shared_updates as shrink_shared_updates
