"""The head for Flax NNX."""

from fisher8_jax.heads.nnx._head import DistributionHead as DistributionHead
from fisher8_jax.heads.nnx._predict import predict_fn as predict_fn
