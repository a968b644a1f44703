"""The Laplace distribution: absolute instead of squared errors, with a predicted scale."""

import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.numerics import Scaled, multiply_by_exp
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._location_scale import LocationScale

# exp(80) is still representable in float32; beyond it standardised residuals travel as logarithms.
_LARGEST_PLAIN_LOG_Z = 80.0


@family
class Laplace(LocationScale, DiagonalFamily):
    """Density `exp(-|y - mean| / scale) / (2 scale)` with `scale = exp(log_scale)`.

    In the coordinates `(mean, log_scale)` the Fisher information and its inverse are

        F    = diag(exp(-2 log_scale), 1)
        F^-1 = diag(exp(2 log_scale), 1)

    so the natural gradient of the NLL is `(sign(mean - targets) * scale, 1 - |z|)` with
    `z = (targets - mean) / scale`. The NLL has a kink at the target, so the mean's entry of `F` is
    the variance of the score; the Hessian is zero almost everywhere and does not show it.

    Args:
        mean: predicted means, which are also the medians.
        log_scale: predicted natural logarithms of the scale; the variance is `2 scale^2`.

    Example:
        >>> import jax.numpy as jnp
        >>> Laplace(jnp.zeros(2), jnp.zeros(2)).nll(jnp.array([0.0, 3.0]), constant=False)
        Array([0., 3.], dtype=float32)

    Reference:
        Kotz, Kozubowski and Podgorski (2001), The Laplace Distribution, section 2.6.
    """

    mean: Array
    log_scale: Array

    variance_field: ClassVar[tuple[str, float]] = ("log_scale", 0.5)
    fisher_depends_on: ClassVar[tuple[str, ...]] = ("log_scale",)

    @property
    def location(self) -> Array:
        """`mean`."""
        return self.mean

    @property
    def noise_std(self) -> Array:
        """`sqrt 2`."""
        return jnp.full_like(self.log_scale, math.sqrt(2))

    def with_location_scale(self, location: Array, log_scale: Array) -> Self:
        """A Laplace distribution of this mean and scale."""
        return type(self)(location, log_scale)

    @property
    def variance(self) -> Array:
        """`2 scale^2`."""
        return 2 * jnp.exp(2 * self.log_scale)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`log_scale + |z|`, plus `ln(2)` with the constant."""
        values = self.log_scale + jnp.abs(multiply_by_exp(targets - self.mean, -self.log_scale))
        return values + math.log(2) if constant else values

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(exp(-2 log_scale), 1)`."""
        return Entry(1.0, -2 * self.log_scale), Entry(1.0)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`(sign(mean - targets) * scale, 1 - |z|)`, right for every finite input."""
        half_residual = 0.5 * self.mean - 0.5 * targets
        log_z = jnp.log(jnp.abs(half_residual)) + math.log(2) - self.log_scale
        is_huge = log_z > _LARGEST_PLAIN_LOG_Z
        z = jnp.exp(jnp.where(is_huge, 0, log_z))
        return {
            "mean": Scaled(jnp.sign(half_residual), self.log_scale),
            "log_scale": Scaled(jnp.where(is_huge, -1, 1 - z), jnp.where(is_huge, log_z, 0)),
        }

    def kl(self, other: Self) -> Array:
        """`KL(self || other)`, free of cancellation when the two are close."""
        p, q = self, other
        difference = p.log_scale - q.log_scale
        shift = jnp.abs(multiply_by_exp(p.mean - q.mean, -p.log_scale))
        spread = jnp.exp(difference) * (jnp.expm1(-shift) + shift)
        return jnp.expm1(difference) - difference + spread

    def cdf(self, targets: Array) -> Array:
        """`exp(z) / 2` below the mean and `1 - exp(-z) / 2` above it."""
        z = multiply_by_exp(targets - self.mean, -self.log_scale)
        tail = 0.5 * jnp.exp(-jnp.abs(z))
        return jnp.where(z < 0, tail, 1 - tail)

    def quantile(self, probability: Array) -> Array:
        """`mean -+ scale * ln(2 min(p, 1 - p))`; `probability` broadcasts against the batch."""
        is_below = probability < 0.5
        # The distance from 1/2 would round away what makes a small probability small.
        z = jnp.log(2 * jnp.where(is_below, probability, 1 - probability))
        return self.mean + multiply_by_exp(jnp.where(is_below, z, -z), self.log_scale)

    def draw(self, key: Array) -> Array:
        """`mean + scale * e` with a standard Laplace `e`."""
        return self.mean + self.scale * jax.random.laplace(key, self.batch_shape, self.mean.dtype)

    def crps(self, targets: Array) -> Array:
        """`scale (|z| + exp(-|z|) - 3/4)`."""
        z = jnp.abs(multiply_by_exp(targets - self.mean, -self.log_scale))
        return self.scale * (z + jnp.exp(-z) - 0.75)
