"""The network of the estimator: dense layers and the Flax head."""

from collections.abc import Callable

import flax.linen as nn
import jax
from jax import Array

from fisher8_jax.families import Family
from fisher8_jax.heads.linen import DistributionHead


class Network(nn.Module):
    """Dense layers on standardised inputs, then a Gaussian for each standardised target.

    Args:
        hidden: the widths of the hidden layers.
        target_shape: () for one target, (k,) for several.
        activation: applied after each hidden layer.
    """

    hidden: tuple[int, ...]
    target_shape: tuple[int, ...]
    activation: Callable[[Array], Array] = jax.nn.silu

    @nn.compact
    def __call__(self, inputs: Array) -> Family:
        features = inputs
        for width in self.hidden:
            features = self.activation(nn.Dense(width)(features))
        return DistributionHead(target_shape=self.target_shape)(features)
