"""Optax transformations: the length of a step measured on the predictions."""

from fisher8_jax.transforms.guards import AverageState as AverageState
from fisher8_jax.transforms.guards import Best as Best
from fisher8_jax.transforms.guards import keep_best as keep_best
from fisher8_jax.transforms.guards import start_best as start_best
from fisher8_jax.transforms.guards import track_average as track_average
from fisher8_jax.transforms.kl_radius import KLRadiusState as KLRadiusState
from fisher8_jax.transforms.kl_radius import scale_by_kl_radius as scale_by_kl_radius
from fisher8_jax.transforms.recipe import fisher8_optimizer as fisher8_optimizer
