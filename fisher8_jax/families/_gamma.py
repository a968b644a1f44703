"""The Gamma distribution by mean and shape: positive targets with a predicted relative spread."""

import math
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betaln, gammainc

from fisher8_jax._numerics import Scaled, multiply_by_exp
from fisher8_jax._special import digamma_remainder, log_gamma_remainder, trigamma_remainder
from fisher8_jax.families._bisection import broadcast_probability, invert_increasing
from fisher8_jax.families._contract import ScalarFamily, family
from fisher8_jax.families._fisher_factor import diagonal_factor
from fisher8_jax.families._scaled import add_scaled
from fisher8_jax.families._units import scale_alone

_LARGEST_PLAIN_LOG = 80.0


@family
class Gamma(ScalarFamily):
    """Gamma of mean `exp(log_mean)` and shape `k = exp(log_concentration)`.

    Mean and shape are orthogonal: in the coordinates `(log_mean, log_concentration)`

        F    = diag(k, k^2 trigamma(k) - k)
        F^-1 = diag(1/k, 1 / (k^2 trigamma(k) - k))

    where the second entry lies between 1/2 and 1. With `d = ln(targets) - log_mean` the natural
    gradient of the NLL is

        log_mean:           -expm1(d)
        log_concentration:  k (digamma(k) - ln k + expm1(d) - d) / (k^2 trigamma(k) - k)

    Args:
        log_mean: predicted natural logarithms of the mean.
        log_concentration: predicted natural logarithms of the shape; the variance is `mean^2 / k`.

    Example:
        >>> import jax.numpy as jnp
        >>> Gamma(jnp.zeros(1), jnp.zeros(1)).nll(jnp.ones(1))  # the unit exponential
        Array([1.], dtype=float32)

    Reference:
        Cox and Reid (1987), Parameter orthogonality and approximate conditional inference,
        example 3.
    """

    log_mean: Array
    log_concentration: Array

    support = "positive"
    units = "scale"

    @property
    def mean(self) -> Array:
        """`exp(log_mean)`."""
        return jnp.exp(self.log_mean)

    @property
    def concentration(self) -> Array:
        """`exp(log_concentration)`, the shape."""
        return jnp.exp(self.log_concentration)

    @property
    def variance(self) -> Array:
        """`mean^2 / concentration`."""
        return jnp.exp(2 * self.log_mean - self.log_concentration)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`ln Gamma(k) - k ln k + k + k (expm1(d) - d) + ln(targets)`, inf outside the support.

        No term is a constant, so `constant` changes nothing.
        """
        dist, targets = self.prepare(targets)
        is_inside = targets > 0
        log_targets = jnp.log(jnp.where(is_inside, targets, 1))
        difference = log_targets - dist.log_mean
        deviance = multiply_by_exp(exp_excess(difference), dist.log_concentration)
        values = log_gamma_remainder(dist.log_concentration) + deviance + log_targets
        return jnp.where(is_inside, values, jnp.inf)

    def natural(self, cotangent: Self) -> Self:
        """`(d_log_mean / k, d_log_concentration / (k^2 trigamma(k) - k))`."""
        dist, cotangent = self.widen(), cotangent.widen()
        return type(self)(
            multiply_by_exp(cotangent.log_mean, -dist.log_concentration),
            cotangent.log_concentration / trigamma_remainder(dist.log_concentration),
        )

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The closed forms of the class docstring, nan outside the support."""
        dist, targets = self.prepare(targets)
        difference = jnp.log(jnp.where(targets > 0, targets, jnp.nan)) - dist.log_mean
        is_huge = difference > _LARGEST_PLAIN_LOG
        plain = jnp.where(is_huge, 0, difference)
        information = trigamma_remainder(dist.log_concentration)
        excess = jnp.where(is_huge, 1, exp_excess(plain)) / information
        log_excess = jnp.where(is_huge, difference, 0) + dist.log_concentration
        settled = digamma_remainder(dist.log_concentration) / information
        return {
            "log_mean": Scaled(
                jnp.where(is_huge, -1, -jnp.expm1(plain)), jnp.where(is_huge, difference, 0)
            ),
            "log_concentration": add_scaled(settled, excess, log_excess),
        }

    def fisher(self, tangent: Self) -> Self:
        """`(k d_log_mean, (k^2 trigamma(k) - k) d_log_concentration)`."""
        dist, tangent = self.widen(), tangent.widen()
        return type(self)(
            multiply_by_exp(tangent.log_mean, dist.log_concentration),
            tangent.log_concentration * trigamma_remainder(dist.log_concentration),
        )

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`k d_log_mean^2 + (k^2 trigamma(k) - k) d_log_concentration^2`."""
        dist, tangent = self.widen(), tangent.widen()
        mean = multiply_by_exp(tangent.log_mean, 0.5 * dist.log_concentration)
        information = trigamma_remainder(dist.log_concentration)
        return jnp.square(mean) + information * jnp.square(tangent.log_concentration)

    def fisher_factor(self) -> Array:
        """`diag(sqrt(k), sqrt(k^2 trigamma(k) - k))`."""
        log_k = self.widen().log_concentration
        return diagonal_factor(jnp.exp(0.5 * log_k), jnp.sqrt(trigamma_remainder(log_k)))

    def kl(self, other: Self) -> Array:
        """The closed form, arranged so that equal means leave a function of the shapes alone."""
        p, q = self.widen(), other.widen()
        difference = p.log_concentration - q.log_concentration
        ratio = jnp.exp(-difference)  # k_q / k_p
        remainders = log_gamma_remainder(q.log_concentration) - log_gamma_remainder(
            p.log_concentration
        )
        shapes = remainders + digamma_remainder(p.log_concentration) * (1 - ratio)
        means = exp_excess(p.log_mean - q.log_mean)
        return shapes + multiply_by_exp(means, q.log_concentration)

    def cdf(self, targets: Array) -> Array:
        """The regularised lower incomplete gamma function of `k targets / mean`."""
        dist, targets = self.prepare(targets)
        return _cdf(dist.log_mean, dist.log_concentration, jnp.maximum(targets, 0))

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf in `ln y`; `probability` broadcasts against the batch."""
        dist = self.widen()
        probability, log_mean, log_k = broadcast_probability(
            probability, self.batch_shape, dist.log_mean, dist.log_concentration
        )
        width = 700.0 if probability.dtype == jnp.float64 else 80.0
        log_y = invert_increasing(
            lambda x: _cdf(jnp.zeros_like(x), log_k, jnp.exp(x)),
            probability,
            jnp.full_like(probability, -width),
            jnp.full_like(probability, 10.0),
        )
        value = jnp.where(probability >= 1, jnp.inf, jnp.exp(log_y + log_mean))
        return jnp.where(probability <= 0, 0, value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """`mean * g / k` with a standard gamma draw `g`, through its logarithm."""
        shape = (*sample_shape, *self.batch_shape)
        log_k = jnp.broadcast_to(self.log_concentration, shape)
        draw = jax.random.loggamma(key, jnp.exp(log_k), shape, self.log_mean.dtype)
        return jnp.exp(draw - log_k + jnp.broadcast_to(self.log_mean, shape))

    def unscale(self, shift: Any, scale: Any) -> Self:
        """`log_mean + ln(scale)`; a shift would leave the family."""
        log_scale = scale_alone("Gamma", shift, scale, self.log_mean)
        return type(self)(self.log_mean + log_scale, self.log_concentration)

    def scale_variance(self, factor: Array) -> Self:
        """`log_concentration - ln(factor)`."""
        log_factor = jnp.log(factor).astype(self.log_concentration.dtype)
        return type(self)(self.log_mean, self.log_concentration - log_factor)

    def crps(self, targets: Array) -> Array:
        """`y (2 F_k(y) - 1) - mean (2 F_{k+1}(y) - 1) - mean / (k Beta(1/2, k))`."""
        dist, targets = self.prepare(targets)
        k, scaled = dist.concentration, dist.concentration * targets / dist.mean
        below, below_next = gammainc(k, scaled), gammainc(k + 1, scaled)
        spread = jnp.exp(-betaln(jnp.full_like(k, 0.5), k)) / k
        return targets * (2 * below - 1) - dist.mean * (2 * below_next - 1 + spread)


def exp_excess(x: Array) -> Array:
    """`exp(x) - 1 - x`, without cancellation near 0."""
    is_small = jnp.abs(x) < 0.1
    small = jnp.where(is_small, x, 0)
    total = jnp.zeros_like(x)
    for n in range(12, 1, -1):
        total = total * small + 1 / math.factorial(n)
    return jnp.where(is_small, total * jnp.square(small), jnp.expm1(x) - x)


def _cdf(log_mean: Array, log_concentration: Array, targets: Array) -> Array:
    scaled = multiply_by_exp(targets, log_concentration - log_mean)
    return gammainc(jnp.exp(log_concentration), scaled)
