"""The head for Flax NNX."""

from fisher8_jax.heads.nnx._head import DistributionHead as DistributionHead
from fisher8_jax.heads.nnx._head import predict_fn as predict_fn
from fisher8_jax.heads.nnx._head import predict_one_fn as predict_one_fn
