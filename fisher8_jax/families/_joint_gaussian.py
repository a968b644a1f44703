"""What Gaussians of several correlated targets share: their marginals, coordinate by coordinate."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtr, ndtri

from fisher8_jax._internal.checks import check_floating
from fisher8_jax.families._contract import Family
from fisher8_jax.families._gaussian import Gaussian


class JointGaussian(Family):
    """A Gaussian over `d` coordinates, with two fields of shape `batch_shape + (d,)`."""

    mean: Array
    log_diagonal: Array

    units: ClassVar[str] = "shift and scale"

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (check_floating("mean", self.mean).shape[-1],)

    def cdf(self, targets: Array) -> Array:
        """The marginal cdf of every coordinate."""
        return ndtr((targets - self.mean) * jax.lax.rsqrt(self.variance))

    def quantile(self, probability: Array) -> Array:
        """The marginal quantile of every coordinate; broadcasts against the targets' shape."""
        return self.mean + jnp.sqrt(self.variance) * ndtri(probability)

    def marginals(self) -> Gaussian:
        """One Gaussian per coordinate, which metrics and plots of scalar targets take."""
        return Gaussian(self.mean, jnp.log(self.variance))

    def crps(self, targets: Array) -> Array:
        """Of every coordinate by itself."""
        return self.marginals().crps(targets)


def eye_like(matrix: Array) -> Array:
    """The identity with the rank and dtype of square matrices."""
    return jnp.eye(matrix.shape[-1], dtype=matrix.dtype)[(None,) * (matrix.ndim - 2)]


def diagonal_matrix(entries: Array) -> Array:
    """Matrices with these diagonals."""
    return entries[..., None] * eye_like(entries[..., None, :])
