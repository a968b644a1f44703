"""What a user of `mypy --strict` writes; `test_heads.py` has it checked."""

from typing import assert_type

import jax
import jax.numpy as jnp
from flax import nnx

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.families import Laplace
from fisher8_jax.heads import family_link
from fisher8_jax.heads.nnx import DistributionHead


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(3, 8, rngs=rngs)
        self.head = DistributionHead(8, rngs=rngs)

    def __call__(self, inputs: jax.Array) -> Gaussian:
        return self.head(jnp.tanh(self.hidden(inputs)))


def loss(model: Network, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    dist = fisher8(model(inputs))
    assert_type(dist, Gaussian)
    return dist.nll(targets).mean() + 0.0 * dist.log_variance.mean()


other = DistributionHead(8, link=family_link(Laplace), rngs=nnx.Rngs(0))
assert_type(other(jnp.ones((2, 8))), Laplace)
