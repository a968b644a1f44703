"""Optax transformations: the length of a step measured on the predictions."""

from fisher8_jax.transforms.kl_radius import KLRadiusState as KLRadiusState
from fisher8_jax.transforms.kl_radius import scale_by_kl_radius as scale_by_kl_radius
