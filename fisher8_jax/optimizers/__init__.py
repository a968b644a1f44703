"""Optax transformations: the length of a step measured on the predictions."""

from fisher8_jax.optimizers._average import AverageState as AverageState
from fisher8_jax.optimizers._average import track_average as track_average
from fisher8_jax.optimizers._best_params import BestParams as BestParams
from fisher8_jax.optimizers._common_moves import shorten_common_moves as shorten_common_moves
from fisher8_jax.optimizers._kl_radius import KLRadiusState as KLRadiusState
from fisher8_jax.optimizers._kl_radius import scale_by_kl_radius as scale_by_kl_radius
from fisher8_jax.optimizers._network_recipe import network_max_kl as network_max_kl
from fisher8_jax.optimizers._network_recipe import network_optimizer as network_optimizer
from fisher8_jax.optimizers._recipe import default_max_change as default_max_change
from fisher8_jax.optimizers._recipe import default_max_kl as default_max_kl
from fisher8_jax.optimizers._recipe import descend_within as descend_within
from fisher8_jax.optimizers._recipe import fisher8_optimizer as fisher8_optimizer
