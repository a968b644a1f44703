"""The head for Flax NNX."""

from fisher8_jax.heads.nnx._head import DistributionHead as DistributionHead
