"""The negative binomial by mean and concentration: counts that spread more than a Poisson's."""

import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import betainc, gammaln

from fisher8_jax._numerics import Scaled, multiply_by_exp
from fisher8_jax._special import log_gamma_remainder
from fisher8_jax.families._bisection import broadcast_probability, smallest_count
from fisher8_jax.families._contract import ScalarFamily, family
from fisher8_jax.families._fisher_factor import diagonal_factor
from fisher8_jax.families._poisson import counts, relative_residual
from fisher8_jax.families._quadrature import add_node_axis, gauss_legendre

_NODES = 80


@family
class NegativeBinomial(ScalarFamily):
    """Counts of mean `m = exp(log_mean)` and variance `m + m^2 / r`, `r = exp(log_concentration)`.

    Mean and concentration are orthogonal: in the coordinates `(log_mean, log_concentration)`

        F    = diag(r m / (r + m), J)
        F^-1 = diag(1/m + 1/r, 1 / J)

        J = integral over x > 0 of x exp(-x) (G(x) - r m / (r + m)),
        G(x) = (1 - (1 + m s / r)^-r) / s,    s = 1 - exp(-x / r)

    The information about the concentration, `r^2 E[trigamma(r) - trigamma(r + Y)] - r m/(r + m)`,
    has no finite closed form; the integral is the same number and is evaluated by the trapezoidal
    rule in `ln x` with 80 nodes, to about 1e-9 in double precision. Towards the Poisson limit it
    falls as `m^2 / (2 r^2)`: the concentration can then not be told from data, and its natural
    gradient grows like `r`.

    Args:
        log_mean: predicted natural logarithms of the mean.
        log_concentration: predicted natural logarithms of `r`, the inverse of the dispersion.

    Example:
        >>> import jax.numpy as jnp
        >>> NegativeBinomial(jnp.zeros(1), jnp.zeros(1)).nll(jnp.zeros(1)).round(4)  # ln 2
        Array([0.6931], dtype=float32)

    Reference:
        Lawless (1987), Negative binomial and mixed Poisson regression; the integral is derived in
        the documentation of the families.
    """

    log_mean: Array
    log_concentration: Array

    support = "counts"

    @property
    def mean(self) -> Array:
        """`exp(log_mean)`."""
        return jnp.exp(self.log_mean)

    @property
    def concentration(self) -> Array:
        """`exp(log_concentration)`."""
        return jnp.exp(self.log_concentration)

    @property
    def variance(self) -> Array:
        """`mean + mean^2 / concentration`."""
        return self.mean + jnp.exp(2 * self.log_mean - self.log_concentration)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """The negative logarithm of the mass, accurate up to the Poisson limit.

        Infinite for what is not a count. No term is a constant, so `constant` changes nothing.
        """
        dist, targets = self.prepare(targets)
        safe, is_inside = counts(targets)
        values = _nll(dist.log_mean, dist.log_concentration, safe)
        return jnp.where(is_inside, values, jnp.inf)

    def natural(self, cotangent: Self) -> Self:
        """`((1/m + 1/r) d_log_mean, d_log_concentration / J)`."""
        dist, cotangent = self.widen(), cotangent.widen()
        log_inverse = jnp.logaddexp(-dist.log_mean, -dist.log_concentration)
        information, log_scale, _ = _information(dist)
        return type(self)(
            multiply_by_exp(cotangent.log_mean, log_inverse),
            multiply_by_exp(cotangent.log_concentration / information, -log_scale),
        )

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`1 - targets / mean`, and the score of the concentration over `J`; nan off the counts.

        Near the Poisson limit that quotient is `r ((targets - m)^2 - targets) / m^2`.
        """
        dist, targets = self.prepare(targets)
        safe, is_count = counts(targets)
        _, score = jax.jvp(
            lambda log_r: _nll(dist.log_mean, log_r, safe),
            (dist.log_concentration,),
            (jnp.ones_like(dist.log_concentration),),
        )
        information, log_scale, is_limit = _information(dist)
        mean = dist.mean
        # (y - m)^2 - y, divided by max(m, 1)^2 so that it cannot overflow.
        unit = jnp.maximum(mean, 1)
        limit = jnp.square((safe - mean) / unit) - safe / jnp.square(unit)
        value = jnp.where(is_limit, limit, jnp.where(is_limit, 0, score) / information)
        log_limit = dist.log_concentration - 2 * jnp.minimum(dist.log_mean, 0)
        return {
            "log_mean": relative_residual(dist.log_mean, targets),
            "log_concentration": Scaled(
                jnp.where(is_count, value, jnp.nan), jnp.where(is_limit, log_limit, -log_scale)
            ),
        }

    def fisher(self, tangent: Self) -> Self:
        """`(r m / (r + m) d_log_mean, J d_log_concentration)`."""
        dist, tangent = self.widen(), tangent.widen()
        log_inverse = jnp.logaddexp(-dist.log_mean, -dist.log_concentration)
        information, log_scale, _ = _information(dist)
        return type(self)(
            multiply_by_exp(tangent.log_mean, -log_inverse),
            information * multiply_by_exp(tangent.log_concentration, log_scale),
        )

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`r m / (r + m) d_log_mean^2 + J d_log_concentration^2`."""
        dist, tangent = self.widen(), tangent.widen()
        log_inverse = jnp.logaddexp(-dist.log_mean, -dist.log_concentration)
        mean = multiply_by_exp(tangent.log_mean, -0.5 * log_inverse)
        information, log_scale, _ = _information(dist)
        shape = multiply_by_exp(tangent.log_concentration, 0.5 * log_scale)
        return jnp.square(mean) + information * jnp.square(shape)

    def fisher_factor(self) -> Array:
        """`diag(sqrt(r m / (r + m)), sqrt(J))`."""
        dist = self.widen()
        log_inverse = jnp.logaddexp(-dist.log_mean, -dist.log_concentration)
        information, log_scale, _ = _information(dist)
        shape = jnp.sqrt(information) * jnp.exp(0.5 * log_scale)
        return diagonal_factor(jnp.exp(-0.5 * log_inverse), shape)

    def kl(self, other: Self) -> Array:
        """`KL(self || other)` by a trapezoidal rule with 160 nodes, to about 1e-9."""
        p, q = self.widen(), other.widen()
        powers = _expected_log_gamma_difference(p, q)
        return powers + _expected_log_powers(p, q) - _expected_log_powers(p, p)

    def cdf(self, targets: Array) -> Array:
        """The probability of at most `floor(targets)`, an incomplete beta function."""
        dist, targets = self.prepare(targets)
        return _cdf(dist.log_mean, dist.log_concentration, targets)

    def quantile(self, probability: Array) -> Array:
        """The smallest count whose cdf reaches `probability`, as a float; by bisection."""
        dist = self.widen()
        probability, log_mean, log_r, variance = broadcast_probability(
            probability, self.batch_shape, dist.log_mean, dist.log_concentration, dist.variance
        )
        upper = jnp.exp(log_mean) + 10 * jnp.sqrt(variance) + 10
        return smallest_count(lambda n: _cdf(log_mean, log_r, n), probability, upper)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """A Poisson draw whose rate is a gamma draw; counts as floating-point numbers."""
        shape = (*sample_shape, *self.batch_shape)
        rate_key, count_key = jax.random.split(key)
        log_r = jnp.broadcast_to(self.log_concentration, shape)
        log_gamma = jax.random.loggamma(rate_key, jnp.exp(log_r), shape, self.log_mean.dtype)
        rate = jnp.exp(log_gamma - log_r + jnp.broadcast_to(self.log_mean, shape))
        return jax.random.poisson(count_key, rate, shape).astype(self.log_mean.dtype)

    def scale_variance(self, factor: Array) -> Self:
        """`m / (factor - 1 + factor m / r)` in place of `r`; nan below a Poisson's variance."""
        dist = self.widen()
        excess = factor - 1 + factor * jnp.exp(dist.log_mean - dist.log_concentration)
        return type(self)(dist.log_mean, dist.log_mean - jnp.log(excess))

    def crps(self, targets: Array) -> Array:
        """`y (2 F(y) - 1) + m - 2 m F_{r+1}(y - 1) - E|Y - Y'| / 2`."""
        dist, targets = self.prepare(targets)
        log_next = jnp.logaddexp(dist.log_concentration, 0.0)
        # E[Y; Y <= y] = m P(Y* <= y - 1), where Y* has r + 1 and the same odds.
        log_mean_next = dist.log_mean + log_next - dist.log_concentration
        below = _cdf(dist.log_mean, dist.log_concentration, targets)
        below_next = _cdf(log_mean_next, log_next, targets - 1)
        from_target = targets * (2 * below - 1) + dist.mean * (1 - 2 * below_next)
        return from_target - 0.5 * _mean_difference(dist.log_mean, dist.log_concentration)


def _nll(log_mean: Array, log_r: Array, y: Array) -> Array:
    """`ln(y!) + y (1 - ln m) - (remainders at r + y and r) + (r + y) ln((r + m) / (r + y))`."""
    log_total = jnp.logaddexp(log_r, jnp.log(jnp.where(y == 0, 1, y)))
    log_total = jnp.where(y == 0, log_r, log_total)
    remainders = log_gamma_remainder(log_total) - log_gamma_remainder(log_r)
    # (r + y) ln(1 + x) with x = (m - y)/(r + y), by logarithms where x is not small.
    mean, total = jnp.exp(log_mean), jnp.exp(log_total)
    log_ratio = jnp.logaddexp(log_r, log_mean) - log_total
    is_close = jnp.abs(log_ratio) < 0.5
    ratio = (mean - y) / jnp.where(is_close, total, 1)
    ratio = jnp.where(is_close, ratio, 0)
    product = jnp.where(is_close, total * jnp.log1p(ratio), total * log_ratio)
    return gammaln(y + 1) + y * (1 - log_mean) - remainders + product


def _information(dist: NegativeBinomial) -> tuple[Array, Array, Array]:
    """`J` as `value * exp(log_scale)`, and where the limit `m^2 / (2 r^2)` replaces the integral.

    The integral subtracts nearly equal numbers when `r^2` exceeds `m` by far.
    """
    log_m, log_r = dist.log_mean, dist.log_concentration
    accuracy = 30.0 if log_m.dtype == jnp.float64 else 9.0
    is_limit = (2 * log_r - jnp.minimum(log_m, 2 * log_m) > accuracy) & (log_r > log_m + 3)
    integral = _integral(jnp.where(is_limit, 0, log_m), jnp.where(is_limit, 0, log_r))
    value = jnp.where(is_limit, 0.5, integral)
    return value, jnp.where(is_limit, 2 * (log_m - log_r), 0), is_limit


def _integral(log_m: Array, log_r: Array) -> Array:
    lower = jnp.minimum(jnp.minimum(log_r, log_r - log_m), 0) - 12
    upper = jnp.full_like(lower, math.log(45.0))
    fraction = add_node_axis(np.linspace(0, 1, _NODES), lower)
    log_x = lower[None] * (1 - fraction) + upper[None] * fraction
    step = (upper - lower) / (_NODES - 1)
    r, m = jnp.exp(log_r)[None], jnp.exp(log_m)[None]
    x = jnp.exp(log_x)
    s = -jnp.expm1(-jnp.exp(log_x - log_r[None]))
    chance = -jnp.expm1(-r * jnp.log1p(s * jnp.exp(log_m - log_r)[None]))
    bracket = chance / s - m / (1 + jnp.exp(log_m - log_r)[None])
    return step * jnp.sum(jnp.square(x) * jnp.exp(-x) * bracket, axis=0)


def _expected_log_gamma_difference(p: NegativeBinomial, q: NegativeBinomial) -> Array:
    """`E_p[ln(Gamma(Y + r_p) / Gamma(r_p)) - ln(Gamma(Y + r_q) / Gamma(r_q))]`.

    Binet's integral for each log-gamma turns the expectation over counts into the probability
    generating function of `p`.
    """
    r_p, r_q = p.concentration, q.concentration
    slowest = jnp.minimum(p.log_concentration, q.log_concentration)
    fastest = jnp.maximum(jnp.maximum(p.log_concentration, q.log_concentration), p.log_mean)
    lower, upper = -jnp.maximum(fastest, 0) - 24, math.log(45.0) - slowest
    fraction = add_node_axis(np.linspace(0, 1, 2 * _NODES), lower)
    t = jnp.exp(lower[None] * (1 - fraction) + upper[None] * fraction)
    s = -jnp.expm1(-t)
    chance = -jnp.expm1(-r_p[None] * jnp.log1p(s * jnp.exp(p.log_mean - p.log_concentration)[None]))
    decay = jnp.exp(-r_q[None] * t) - jnp.exp(-r_p[None] * t)
    return (upper - lower) / (2 * _NODES - 1) * jnp.sum(decay * chance / s, axis=0)


def _expected_log_powers(p: NegativeBinomial, q: NegativeBinomial) -> Array:
    """`-E_p[r_q ln(r_q / (r_q + m_q)) + Y ln(m_q / (r_q + m_q))]`."""
    difference = q.log_mean - q.log_concentration
    return q.concentration * jax.nn.softplus(difference) + p.mean * jax.nn.softplus(-difference)


def _cdf(log_mean: Array, log_r: Array, targets: Array) -> Array:
    whole = jnp.floor(jnp.maximum(targets, 0))
    chance = betainc(jnp.exp(log_r), whole + 1, jax.nn.sigmoid(log_r - log_mean))
    return jnp.where(targets < 0, 0, chance)


def _mean_difference(log_mean: Array, log_r: Array) -> Array:
    """`E|Y - Y'|` of two independent draws, from their characteristic function.

    `|n| = integral_0^pi (1 - cos(n t)) / (1 - cos t) dt / pi` for whole numbers, so it is the
    integral of `(1 - (1 + 2 a (1 - cos t))^-r) / (1 - cos t)` with `a = m (r + m) / r^2`. The bump
    at 0 is as wide as one over the standard deviation; `t = sinh(s) / std` resolves it.
    """
    log_a = log_mean + jnp.logaddexp(log_r, log_mean) - 2 * log_r
    std = jnp.maximum(jnp.exp(0.5 * (log_a + log_r)), 1)
    nodes, weights = (add_node_axis(x, log_mean) for x in gauss_legendre(64))
    end = jnp.arcsinh(math.pi * std)[None]
    t = jnp.sinh(nodes * end) / std[None]
    one_minus_cos = 2 * jnp.square(jnp.sin(0.5 * t))
    growth = jnp.log1p(2 * multiply_by_exp(one_minus_cos, log_a[None]))
    values = -jnp.expm1(-jnp.exp(log_r)[None] * growth) / one_minus_cos
    slope = jnp.cosh(nodes * end) / std[None]
    return end[0] / math.pi * jnp.sum(weights * slope * values, axis=0)
