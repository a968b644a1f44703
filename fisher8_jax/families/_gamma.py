"""The Gamma distribution by mean and shape: positive targets with a predicted relative spread."""

import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import smallest_float, tail_reaches
from fisher8_jax._internal.deviance import exp_excess, log_ratio
from fisher8_jax._internal.incomplete import gamma_density, gamma_tails
from fisher8_jax._internal.numerics import Scaled, add_scaled, multiply_by_exp
from fisher8_jax._internal.special import (
    digamma_remainder,
    log_gamma_bregman,
    log_gamma_remainder,
    log_rising,
    trigamma_remainder,
)
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._targets import scale_alone

_LARGEST_PLAIN_LOG = 80.0


@family
class Gamma(DiagonalFamily):
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
        is_inside = targets > 0
        targets = jnp.where(is_inside, targets, 1)
        log_targets, difference = jnp.log(targets), log_ratio(targets, self.log_mean)
        deviance = multiply_by_exp(exp_excess(difference), self.log_concentration)
        values = log_gamma_remainder(self.log_concentration) + deviance + log_targets
        return jnp.where(is_inside, values, jnp.inf)

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(k, k^2 trigamma(k) - k)`."""
        log_k = self.log_concentration
        return Entry(1.0, log_k), Entry(trigamma_remainder(log_k))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The closed forms of the class docstring, nan outside the support."""
        difference = log_ratio(jnp.where(targets > 0, targets, jnp.nan), self.log_mean)
        is_huge = difference > _LARGEST_PLAIN_LOG
        plain = jnp.where(is_huge, 0, difference)
        information = trigamma_remainder(self.log_concentration)
        excess = jnp.where(is_huge, 1, exp_excess(plain)) / information
        log_excess = jnp.where(is_huge, difference, 0) + self.log_concentration
        settled = digamma_remainder(self.log_concentration) / information
        return {
            "log_mean": Scaled(
                jnp.where(is_huge, -1, -jnp.expm1(plain)), jnp.where(is_huge, difference, 0)
            ),
            "log_concentration": add_scaled(settled, excess, log_excess),
        }

    def kl(self, other: Self) -> Array:
        """The closed form: what the shapes add and what the means add, both never negative."""
        p, q = self, other
        shapes = log_gamma_bregman(p.log_concentration, q.log_concentration)
        means = exp_excess(p.log_mean - q.log_mean)
        return shapes + multiply_by_exp(means, q.log_concentration)

    def cdf(self, targets: Array) -> Array:
        """The regularised lower incomplete gamma function of `k targets / mean`."""
        is_outside = targets <= 0
        difference = log_ratio(jnp.where(is_outside, 1, targets), self.log_mean)
        return jnp.where(is_outside, 0, gamma_tails(self.log_concentration, difference)[0])

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf in `ln(y / mean)`; `probability` broadcasts against the batch."""
        log_k, end = self.log_concentration, jnp.full_like(probability, 1e30)
        difference = smallest_float(
            lambda x: tail_reaches(gamma_tails(log_k, x), probability), -end, end
        )
        value = multiply_by_exp(multiply_by_exp(jnp.ones_like(end), difference), self.log_mean)
        value = jnp.where(probability >= 1, jnp.inf, value)
        value = jnp.where(probability <= 0, 0, value)
        return jnp.where((probability >= 0) & (probability <= 1), value, jnp.nan)

    def draw(self, key: Array) -> Array:
        """`mean * g / k` with a standard gamma draw `g`, through its logarithm."""
        log_k = self.log_concentration
        draw = jax.random.loggamma(key, jnp.exp(log_k), dtype=self.log_mean.dtype)
        return jnp.exp(draw - log_k + self.log_mean)

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """`log_mean + ln(scale)`; a shift would leave the family."""
        log_scale = scale_alone("Gamma", shift, scale, self.log_mean)
        return type(self)(self.log_mean + log_scale, self.log_concentration)

    def scale_variance(self, factor: Array) -> Self:
        """`log_concentration - ln(factor)`."""
        log_factor = jnp.log(factor).astype(self.log_concentration.dtype)
        return type(self)(self.log_mean, self.log_concentration - log_factor)

    def crps(self, targets: Array) -> Array:
        """`(y - mean) (2 F(y) - 1) + 2 mean g(y) / k - mean / (k Beta(1/2, k))`.

        `g(y) = x^k exp(-x) / Gamma(k)` with `x = k y / mean`.
        """
        log_k = self.log_concentration
        difference = log_ratio(targets, self.log_mean)
        lower, upper = gamma_tails(log_k, difference)
        peak = 2 * gamma_density(log_k, difference) * jnp.exp(-log_k)
        large = jnp.expm1(difference) * (lower - upper) + peak - _half_gini(log_k)
        # A small shape: all three are close to 1, and what is left of them is of the order k.
        small_k = jnp.minimum(jnp.exp(log_k), 1)
        one = jnp.ones_like(small_k)
        log_x = difference + jnp.log(small_k)
        log_peak = small_k * log_x - jnp.exp(log_x) - log_rising(one, small_k)
        log_gini = log_rising(0.5 * one, small_k) - log_rising(one, small_k)
        rest = 2 * jnp.expm1(log_peak) - jnp.expm1(log_gini)
        small = jnp.exp(difference) * (lower - upper) + 2 * upper + rest
        return multiply_by_exp(jnp.where(log_k < 0, small, large), self.log_mean)


def _half_gini(log_k: Array) -> Array:
    """`1 / (k Beta(1/2, k)) = Gamma(k + 1/2) / (sqrt(pi) Gamma(k + 1))`."""
    log_next = jnp.logaddexp(log_k, -math.log(2))
    # (k + 1/2) ln(k + 1/2) - k ln(k) - 1/2, of which ln(k)/2 remains for large k.
    entropy = jnp.exp(log_k) * jnp.log1p(0.5 * jnp.exp(-log_k)) + 0.5 * log_next - 0.5
    remainders = log_gamma_remainder(log_next) - log_gamma_remainder(log_k)
    return jnp.exp(remainders + entropy - log_k - 0.5 * math.log(math.pi))
