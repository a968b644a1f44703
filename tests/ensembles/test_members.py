"""Members side by side, and the mixture that they predict."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax.ensembles import Mixture
from fisher8_jax.heads.linen import DistributionHead


class Network(nn.Module):
    dropout: float = 0.0

    @nn.compact
    def __call__(self, inputs, *, deterministic=True):
        features = nn.silu(nn.Dense(8)(inputs))
        features = nn.Dropout(self.dropout, deterministic=deterministic)(features)
        return DistributionHead()(features)


def problem():
    keys = jax.random.split(jax.random.key(0), 2)
    inputs = jax.random.normal(keys[0], (16, 3), jnp.float32)
    return inputs, inputs[..., 0] + 0.1 * jax.random.normal(keys[1], (16,), jnp.float32)


def init(key):
    return Network().init(key, jnp.zeros((1, 3), jnp.float32))


@functools.cache
def members(number):
    return jax.vmap(init)(jax.random.split(jax.random.key(1), number))


def member(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def test_predictions_of_members_are_a_mixture():
    params, inputs = members(3), problem()[0]
    mixture = Mixture(jax.vmap(Network().apply, in_axes=(0, None))(params, inputs))
    assert (mixture.size, mixture.batch_shape) == (3, (16,))
    first = Network().apply(member(params, 0), inputs)
    np.testing.assert_allclose(mixture.member(0).mean, first.mean, rtol=1e-5, atol=1e-6)
    assert (mixture.epistemic > 0).all()


def test_mc_dropout_is_a_mixture_of_passes():
    network = Network(dropout=0.5)
    inputs = problem()[0]
    params = network.init(jax.random.key(0), inputs)

    def predict(key):
        return network.apply(params, inputs, deterministic=False, rngs={"dropout": key})

    keys = jax.random.split(jax.random.key(2), 50)
    mixture = jax.jit(lambda keys: Mixture(jax.vmap(predict)(keys)))(keys)
    assert mixture.size == 50
    assert (mixture.epistemic > 0).all()
    # Inverted dropout leaves the expected output of the linear head unchanged; the tolerance is
    # four standard errors of 50 passes.
    plain = network.apply(params, inputs)
    error = 4 * np.sqrt(np.asarray(mixture.epistemic) / 50)
    assert (np.abs(mixture.mean - plain.mean) < error).all()
