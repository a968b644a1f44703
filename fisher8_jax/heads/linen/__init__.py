"""The head for Flax Linen."""

from fisher8_jax.heads.linen._head import DistributionHead as DistributionHead
from fisher8_jax.heads.linen._head import TrainState as TrainState
