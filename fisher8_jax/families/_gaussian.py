"""The Gaussian with a predicted variance, the likelihood of the Fisher8 paper."""

import math
from typing import ClassVar, Self

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import erf, ndtr, ndtri

from fisher8_jax._internal.checks import (
    check_floating,
    check_not_negative,
    check_positive,
    check_same_shape,
)
from fisher8_jax._internal.numerics import (
    HALF_LOG_2PI,
    Scaled,
    at_least_float32,
    log_softplus,
    multiply_by_exp,
)
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._location_scale import LocationScale

# exp(2 * 40) is still representable in float32; beyond it squared residuals travel as logarithms.
_LARGEST_PLAIN_LOG_Z = 40.0


@family
class Gaussian(LocationScale, DiagonalFamily):
    """Normal distribution `N(mean, exp(log_variance))`, one per element.

    In the coordinates `(mean, log_variance)` the Fisher information and its inverse are

        F    = diag(exp(-log_variance), 1/2)
        F^-1 = diag(exp(log_variance), 2)

    so the natural gradient of the NLL is `(mean - targets, 1 - z^2)` with the standardised residual
    `z = (targets - mean) / exp(log_variance / 2)`.

    Args:
        mean: predicted means, any shape.
        log_variance: predicted natural logarithms of the variance, the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = Gaussian(mean=jnp.zeros(3), log_variance=jnp.zeros(3))
        >>> dist.nll(jnp.array([0.0, 1.0, 2.0]), constant=False)
        Array([0. , 0.5, 2. ], dtype=float32)

    Reference:
        Fisher8, UAI 2026: the loss and its Fisher information, section 3.
    """

    mean: Array
    log_variance: Array

    variance_field: ClassVar[tuple[str, float]] = ("log_variance", 1.0)
    fisher_depends_on: ClassVar[tuple[str, ...]] = ("log_variance",)

    @classmethod
    def from_log_std(cls, mean: Array, log_std: Array) -> Self:
        """From a head that outputs `ln(std)`."""
        return cls(mean, 2 * jnp.asarray(log_std))

    @classmethod
    def from_std(cls, mean: Array, std: Array) -> Self:
        """From standard deviations that are already positive; negative ones raise outside `jit`."""
        return cls(mean, 2 * jnp.log(check_not_negative("std", std)))

    @classmethod
    def from_variance(cls, mean: Array, variance: Array) -> Self:
        """From variances that are already positive; negative ones raise outside `jit`.

        Example:
            >>> import jax.numpy as jnp
            >>> Gaussian.from_variance(mean=jnp.zeros(1), variance=jnp.array([4.0])).std
            Array([2.], dtype=float32)
        """
        return cls(mean, jnp.log(check_not_negative("variance", variance)))

    @classmethod
    def from_softplus_std(cls, mean: Array, raw: Array) -> Self:
        """From a head with `std = softplus(raw)`, exact in log space for any finite `raw`.

        Example:
            >>> import jax.numpy as jnp
            >>> dist = Gaussian.from_softplus_std(mean=jnp.zeros(1), raw=jnp.array([-500.0]))
            >>> dist.log_variance
            Array([-1000.], dtype=float32)
        """
        return cls(mean, 2 * log_softplus(jnp.asarray(raw)))

    @classmethod
    def from_softplus_variance(cls, mean: Array, raw: Array, *, min_variance: float = 0.0) -> Self:
        """From a head with `variance = softplus(raw) + min_variance`."""
        log_variance = log_softplus(jnp.asarray(raw))
        if min_variance != 0:
            check_positive("min_variance", min_variance)
            log_variance = jnp.logaddexp(log_variance, math.log(min_variance))
        return cls(mean, log_variance)

    @classmethod
    def from_natural(cls, location: Array, raw: Array, *, min_precision: float = 1e-8) -> Self:
        """From natural parameters: `mean = location / precision`.

        With `precision = softplus(raw) + min_precision` the natural parameters are
        `eta1 = location` and `eta2 = -precision / 2`, so the gradient of the NLL with respect to
        `location` is `mean - targets`, whatever the variance.

        Reference:
            Immer et al., Effective Bayesian heteroscedastic regression with deep neural networks,
            NeurIPS 2023.
        """
        check_positive("min_precision", min_precision)
        location, raw = check_floating("location", location), check_floating("raw", raw)
        check_same_shape({"location": location, "raw": raw})
        # In half precision the smallest precision would round to 0.
        precision = jax.nn.softplus(at_least_float32(raw)) + min_precision
        mean = at_least_float32(location) / precision
        return cls(mean.astype(location.dtype), -jnp.log(precision).astype(raw.dtype))

    @classmethod
    def from_soft_bounds(
        cls,
        mean: Array,
        raw: Array,
        *,
        min_log_variance: chex.Numeric,
        max_log_variance: chex.Numeric,
    ) -> Self:
        """From a raw log-variance between two learned bounds, the head of PETS.

        In two steps, each a softplus instead of a clip, so that a gradient always remains:

            below = max_log_variance - softplus(max_log_variance - raw)
            log_variance = min_log_variance + softplus(below - min_log_variance)

        The second step may lift the result above `max_log_variance`, by at most
        `softplus(min_log_variance - max_log_variance)`. A bound is a scalar or has one value per
        trailing coordinate. Add `0.01 * (max_log_variance - min_log_variance).sum()` to the loss.

        Example:
            >>> import jax.numpy as jnp
            >>> raw = jnp.array([-50.0, -2.0, 50.0])
            >>> bounds = dict(min_log_variance=-10.0, max_log_variance=0.5)
            >>> Gaussian.from_soft_bounds(jnp.zeros(3), raw, **bounds).log_variance.round(2)
            Array([-10.  ,  -2.08,   0.5 ], dtype=float32)

        Reference:
            Chua et al., Deep reinforcement learning in a handful of trials, NeurIPS 2018,
            the appendix on well-behaved probabilistic networks.
        """
        mean, raw = check_floating("mean", mean), check_floating("raw", raw)
        check_same_shape({"mean": mean, "raw": raw})
        low = _expand_bound("min_log_variance", min_log_variance, raw)
        high = _expand_bound("max_log_variance", max_log_variance, raw)
        below = high - jax.nn.softplus(high - raw)
        return cls(mean, low + jax.nn.softplus(below - low))

    @property
    def location(self) -> Array:
        """`mean`."""
        return self.mean

    @property
    def log_scale(self) -> Array:
        """`log_variance / 2`."""
        return 0.5 * self.log_variance

    @property
    def variance(self) -> Array:
        """`exp(log_variance)`."""
        return jnp.exp(self.log_variance)

    @property
    def noise_std(self) -> Array:
        """1: the noise is standard normal."""
        return jnp.ones_like(self.log_variance)

    def with_location_scale(self, location: Array, log_scale: Array) -> Self:
        """A Gaussian of this mean and of log-variance `2 log_scale`."""
        return type(self)(location, 2 * log_scale)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`log_variance/2 + z^2/2`, plus `ln(2 pi)/2` with the constant."""
        values = 0.5 * (self.log_variance + jnp.square(self.standardize(targets)))
        return values + HALF_LOG_2PI if constant else values

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(exp(-log_variance), 1/2)`."""
        return Entry(1.0, -self.log_variance), Entry(0.5)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`(mean - targets, 1 - z^2)`, right for every finite input."""
        mean, log_variance = self.mean, self.log_variance
        residual = mean - targets
        # Halved first, because the difference of two huge numbers may overflow.
        half_residual = 0.5 * mean - 0.5 * targets
        overflows = jnp.isinf(residual)
        log_z = jnp.log(jnp.abs(half_residual)) + math.log(2) - 0.5 * log_variance
        is_huge = log_z > _LARGEST_PLAIN_LOG_Z
        z = 2 * multiply_by_exp(half_residual, -0.5 * jnp.where(is_huge, 0, log_variance))
        return {
            "mean": Scaled(
                jnp.where(overflows, half_residual, residual),
                jnp.where(overflows, jnp.asarray(math.log(2), residual.dtype), 0),
            ),
            "log_variance": Scaled(
                jnp.where(is_huge, -1, 1 - jnp.square(jnp.where(is_huge, 0, z))),
                jnp.where(is_huge, 2 * log_z, 0),
            ),
        }

    def kl(self, other: Self) -> Array:
        """`KL(self || other)`, free of cancellation when the two are close."""
        p, q = self, other
        difference = p.log_variance - q.log_variance
        shift = multiply_by_exp(q.mean - p.mean, -0.5 * q.log_variance)
        return 0.5 * (jnp.expm1(difference) - difference + jnp.square(shift))

    def cdf(self, targets: Array) -> Array:
        """`Phi(z)`."""
        return ndtr(self.standardize(targets))

    def quantile(self, probability: Array) -> Array:
        """`mean + std * Phi^-1(probability)`; `probability` broadcasts against the batch."""
        return self.mean + multiply_by_exp(ndtri(probability), 0.5 * self.log_variance)

    def draw(self, key: Array) -> Array:
        """`mean + std * e` with standard normal `e`."""
        dtype = jnp.result_type(self.mean, self.log_variance)
        return self.mean + self.std * jax.random.normal(key, self.batch_shape, dtype)

    def crps(self, targets: Array) -> Array:
        """`r erf(z / sqrt 2) + std (2 phi(z) - 1 / sqrt pi)`, with the residual `r = z std`."""
        z = self.standardize(targets)
        density = jnp.exp(-0.5 * jnp.square(z) - HALF_LOG_2PI)
        # Written with the residual itself, because `z * std` is inf * 0 for a vanishing std.
        from_residual = (targets - self.mean) * erf(z / math.sqrt(2))
        return from_residual + self.std * (2 * density - 1 / math.sqrt(math.pi))


def _expand_bound(name: str, bound: chex.Numeric, raw: Array) -> Array:
    """`bound` with the shape of `raw`; it may be a scalar or cover the trailing axes."""
    bound = jnp.asarray(bound, raw.dtype)
    trailing = raw.shape[raw.ndim - bound.ndim :] if bound.ndim <= raw.ndim else None
    if bound.shape != trailing:
        raise ValueError(
            f"`{name}` must be a scalar or have the shape of the trailing axes of `raw`, "
            f"{raw.shape}, got {bound.shape}. One bound per output needs shape "
            f"{raw.shape[-1:]}."
        )
    return lax.broadcast_in_dim(bound, raw.shape, tuple(range(raw.ndim - bound.ndim, raw.ndim)))
