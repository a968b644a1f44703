"""A distribution that is no family: the metrics must get by with the smaller contract."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax.families import Predictive


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Laplace(Predictive):
    mean: Array
    log_scale: Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.mean.shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def variance(self) -> Array:
        return 2 * jnp.exp(2 * self.log_scale)

    def _z(self, targets):
        return (targets - self.mean) * jnp.exp(-self.log_scale)

    def nll(self, targets, *, constant=True):
        values = jnp.abs(self._z(targets)) + self.log_scale
        return values + jnp.log(2.0) if constant else values

    def cdf(self, targets):
        z = self._z(targets)
        tail = 0.5 * jnp.exp(-jnp.abs(z))
        return jnp.where(z < 0, tail, 1 - tail)

    def quantile(self, probability):
        tail = jnp.minimum(probability, 1 - probability)
        sign = jnp.sign(probability - 0.5)
        return self.mean - jnp.exp(self.log_scale) * sign * jnp.log(2 * tail)

    def sample(self, key, sample_shape=()):
        raise NotImplementedError
