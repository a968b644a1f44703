"""The negative binomial by mean and concentration: counts that spread more than a Poisson's."""

import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.bisection import smallest_count
from fisher8_jax._internal.deviance import beta_deviance, exp_excess, log1p_deficit_ratio, log_ratio
from fisher8_jax._internal.incomplete import beta_tails
from fisher8_jax._internal.numerics import Scaled, materialize, multiply_by_exp
from fisher8_jax._internal.special import digamma_tail, log_gamma_remainder
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._poisson import count_shift, counts, draw_counts, relative_residual
from fisher8_jax.families._quadrature import add_node_axis, gauss_legendre
from fisher8_jax.families._targets import safe_log


@family
class NegativeBinomial(DiagonalFamily):
    """Counts of mean `m = exp(log_mean)` and variance `m + m^2 / r`, `r = exp(log_concentration)`.

    Mean and concentration are orthogonal: in the coordinates `(log_mean, log_concentration)`

        F    = diag(r m / (r + m), J)
        F^-1 = diag(1/m + 1/r, 1 / J)

        J = integral over x > 0 of x exp(-x) (G(x) - r m / (r + m)),
        G(x) = (1 - (1 + m s / r)^-r) / s,    s = 1 - exp(-x / r)

    The information about the concentration, `r^2 E[trigamma(r) - trigamma(r + Y)] - r m/(r + m)`,
    has no finite closed form; the integral is the same number and is evaluated by the trapezoidal
    rule in `ln x` with 80 nodes (48 in float32), to about 1e-9 in double precision. Towards the
    Poisson limit it falls as `m^2 / (2 r^2)`: data then hardly identify the concentration, and
    its natural gradient grows like `r`.

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
    starts: ClassVar = {"log_mean": safe_log}

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
        safe, is_inside = counts(targets)
        positive = jnp.where(safe == 0, 1, safe)
        log_y, log_r = jnp.log(positive), self.log_concentration
        # (r + y) times the divergence of the shares y / (r + y) and m / (r + m), plus remainders.
        deviance = beta_deviance(log_y, log_r, -log_ratio(positive, self.log_mean))
        total = jnp.logaddexp(log_r, log_y)
        remainders = log_gamma_remainder(log_r) - log_gamma_remainder(total)
        values = deviance + remainders + log_y + log_gamma_remainder(log_y)
        # (r + m) / r to the power of r: r ln(1 + m/r) without overflow of the quotient.
        empty = multiply_by_exp(jax.nn.softplus(self.log_mean - log_r), log_r)
        return jnp.where(is_inside, jnp.where(safe == 0, empty, values), jnp.inf)

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(r m / (r + m), J)`."""
        log_inverse = jnp.logaddexp(-self.log_mean, -self.log_concentration)
        return Entry(1.0, -log_inverse), Entry(*_information(self))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`1 - targets / mean`, and the score of the concentration over `J`; nan off the counts.

        Near the Poisson limit that quotient is `r ((targets - m)^2 - targets) / m^2`.
        """
        safe, is_count = counts(targets)
        score = _score_of_log_r(self.log_mean, self.log_concentration, safe)
        information, log_scale = _information(self)
        value = jnp.where(is_count, score, jnp.nan) / information
        return {
            "log_mean": relative_residual(self.log_mean, targets),
            "log_concentration": Scaled(value, -log_scale),
        }

    def kl(self, other: Self) -> Array:
        """What the means add, in closed form, plus what the shapes add, by 160-node quadrature."""
        p, q = self, other
        means = beta_deviance(p.log_mean, q.log_concentration, q.log_mean - p.log_mean)
        return means + _divergence_of_shapes(p.log_mean, p.log_concentration, q.log_concentration)

    def cdf(self, targets: Array) -> Array:
        """The probability of at most `floor(targets)`, an incomplete beta function."""
        return _tails(self.log_mean, self.log_concentration, targets)[0]

    def quantile(self, probability: Array) -> Array:
        """The smallest count whose cdf reaches `probability`, as a float; by bisection."""
        log_mean, log_r = self.log_mean, self.log_concentration
        return smallest_count(lambda n: _tails(log_mean, log_r, n), probability)

    def draw(self, key: Array) -> Array:
        """A Poisson draw whose rate is a gamma draw; counts as floating-point numbers."""
        rate_key, count_key = jax.random.split(key)
        log_r = self.log_concentration
        log_gamma = jax.random.loggamma(rate_key, jnp.exp(log_r), dtype=self.log_mean.dtype)
        return draw_counts(count_key, jnp.exp(log_gamma - log_r + self.log_mean))

    def scale_variance(self, factor: Array) -> Self:
        """`m / (factor - 1 + factor m / r)` in place of `r`; nan below a Poisson's variance."""
        dist = self.widen()
        excess = factor - 1 + factor * jnp.exp(dist.log_mean - dist.log_concentration)
        return type(self)(dist.log_mean, dist.log_mean - jnp.log(excess))

    def crps(self, targets: Array) -> Array:
        """`(y - m) (2 F(y) - 1) + 2 m (1 + y/r) p(y) - E|Y - Y'| / 2`."""
        log_mean, log_r = self.log_mean, self.log_concentration
        lower, upper = _tails(log_mean, log_r, targets)
        residual = multiply_by_exp(-materialize(relative_residual(log_mean, targets)), log_mean)
        mass = jnp.exp(log_mean - self.nll(targets)) * (1 + targets * jnp.exp(-log_r))
        to_target = residual * (lower - upper) + 2 * mass
        return to_target - 0.5 * _mean_difference(log_mean, log_r)


def _score_of_log_r(log_mean: Array, log_r: Array, y: Array) -> Array:
    """The derivative of the NLL in `log_r`, with `v = (y - m) / (r + m)` and `c = r + y`:

        r (v - ln(1 + v)) - (digamma remainder of c * r/c - digamma remainder of r)

    The second bracket is `y / (2 c)` less the difference of two small tails.
    """
    positive = jnp.where(y == 0, 1, y)
    difference = log_ratio(positive, log_mean)
    share = jax.nn.sigmoid(log_mean - log_r)  # m / (r + m)
    far_at_zero = jax.nn.softplus(log_mean - log_r) - share
    v = share * jnp.expm1(jnp.minimum(difference, 80.0))
    log_c = jnp.logaddexp(log_r, jnp.log(positive))
    # ln(1 + v) = ln((r + y) / (r + m)), by logarithms where v is close to -1.
    far = v - (log_c - jnp.logaddexp(log_r, log_mean))
    is_close = jnp.abs(v) < 0.3
    near = jnp.where(is_close, v, 0)
    # A tiny v is not squared before it meets r, because its square may vanish.
    curved = multiply_by_exp(near, log_r) * log1p_deficit_ratio(near)
    curved = jnp.where(is_close, curved, multiply_by_exp(far, log_r))
    tails = digamma_tail(log_c) * jnp.exp(log_r - log_c) - digamma_tail(log_r)
    settled = 0.5 * y * jnp.exp(-log_c) + tails
    # At 1 all of this cancels for small means; there the score is that at 0 less m / (r + m).
    at_zero = multiply_by_exp(share, log_r) * -log1p_deficit_ratio(-share)
    at_zero = jnp.where(share < 0.3, at_zero, multiply_by_exp(far_at_zero, log_r))
    return jnp.where(y == 0, at_zero, jnp.where(y == 1, at_zero - share, curved - settled))


def _information(dist: NegativeBinomial) -> tuple[Array, Array]:
    """`J` as `value * exp(log_scale)`, where the scale is `min(m/r, 1)^2`."""
    log_m, log_r = dist.log_mean, dist.log_concentration
    log_scale = 2 * jnp.minimum(log_m - log_r, 0)
    # The integrand rises as the third power of x and falls as exp(-x).
    count, reach, end = (80, 12, 45.0) if log_m.dtype == jnp.float64 else (48, 5.5, 22.0)
    lower = jnp.minimum(jnp.minimum(log_r, log_r - log_m), 0) - reach
    log_x, step = _log_nodes(lower, jnp.full_like(lower, math.log(end)), count)
    x = jnp.exp(log_x)
    bracket = _bracket(x * jnp.exp(-log_r)[None], log_m[None], log_r[None])
    total = step * jnp.sum(jnp.square(x) * jnp.exp(-x) * bracket, axis=0)
    # Its limit for small m/r, off by a part of about m/r, long before that underflows.
    is_limit = log_m - log_r < (-40 if log_m.dtype == jnp.float64 else -20)
    value = multiply_by_exp(total, -0.5 * jnp.where(is_limit, 0, log_scale))
    return jnp.where(is_limit, 0.5 * jax.nn.sigmoid(log_r), value), log_scale


def _divergence_of_shapes(log_m: Array, log_p: Array, log_q: Array) -> Array:
    """`KL` of two with the mean `m` and concentrations `p` and `q`.

    The integral over t > 0 of `-(exp(-p t) - exp(-q t)) / t` times the bracket. The part linear in
    `q - p` integrates to 0, as the mean score vanishes; it is left out where p and q are close.
    """
    slowest, fastest = jnp.minimum(log_p, log_q), jnp.maximum(log_p, log_q)
    lower = -jnp.maximum(jnp.maximum(fastest, log_m), 0) - 9
    log_t, step = _log_nodes(lower, math.log(45.0) - slowest, 160)
    difference = (log_q - log_p)[None]
    p_t, q_t = jnp.exp(log_p[None] + log_t), jnp.exp(log_q[None] + log_t)
    is_close = jnp.abs(difference) < 1
    excess = jnp.exp(-p_t) * exp_excess(-p_t * jnp.expm1(jnp.where(is_close, difference, 0)))
    weight = jnp.where(is_close, excess, jnp.exp(-q_t) - jnp.exp(-p_t))
    bracket = _bracket(jnp.exp(log_t), log_m[None], log_p[None])
    scale = jnp.exp(jnp.minimum(log_m - log_p, 0))
    return jnp.maximum(scale * step * jnp.sum(weight * bracket, axis=0), 0)


def _log_nodes(lower: Array, upper: Array, count: int) -> tuple[Array, Array]:
    fraction = add_node_axis(np.linspace(0, 1, count), lower)
    return lower[None] * (1 - fraction) + upper[None] * fraction, (upper - lower) / (count - 1)


def _bracket(t: Array, log_m: Array, log_r: Array) -> Array:
    """`(1 - (1 + m s / r)^-r) / s - (1 - exp(-m t)) / t` over `min(m/r, 1)`, `s = 1 - exp(-t)`.

    With `A = r ln(1 + m s / r)`, `B = m t` and `E(x) = (1 - exp(-x)) / x` it is

        m (E(A) (ln(1 + u)/u - 1) + E(A) - E(B))                      u = m s / r, for small B
        (1 - exp(-A)) (1/s - 1/t) - exp(-A) (1 - exp(A - B)) / t      for large B

    and `B - A = r (u - ln(1 + u)) + m (t - s)`, so no two terms nearly cancel.
    """
    log_rho, m, r = log_m - log_r, jnp.exp(log_m), jnp.exp(log_r)
    s = -jnp.expm1(-t)
    u = jnp.exp(jnp.minimum(log_rho, 80.0)) * s
    # Both ratios are halves of their argument near 0: nothing is squared that may vanish.
    log_part, exp_part = log1p_deficit_ratio(u), _one_minus_ratio(t, s)
    big_a, big_b = r * jnp.log1p(u), m * t
    gap = r * u * log_part + big_b * exp_part
    decline = jnp.expm1(-big_a)
    is_small = big_b < 0.5
    a, b = jnp.where(is_small, big_a, 0), jnp.where(is_small, big_b, 0)
    # E(A) - E(B) = (B - A) (1/2! - (A + B)/3! + (A^2 + AB + B^2)/4! - ...)
    total, powers, power = jnp.zeros_like(a), jnp.ones_like(a), jnp.ones_like(a)
    for n in range(1, 15 if a.dtype == jnp.float64 else 7):
        total = total + (-1) ** (n + 1) / math.factorial(n + 1) * powers
        power = power * b
        powers = a * powers + power
    shrink = jnp.where(a > 0, -decline / jnp.where(a > 0, a, 1), 1)
    # m / min(m/r, 1) = max(m, r).
    near = jnp.maximum(m, r) * (gap * total - shrink * log_part)
    far = (1 + decline) * jnp.expm1(-gap) / t - decline * (exp_part / s)
    return jnp.where(is_small, near, far * jnp.exp(jnp.clip(-log_rho, 0, 80)))


def _one_minus_ratio(t: Array, s: Array) -> Array:
    """`1 - s / t` for `s = 1 - exp(-t)`, which is `t / 2` near 0."""
    is_small = t < 0.5
    small = jnp.where(is_small, t, 0)
    total = jnp.zeros_like(t)
    for n in range(17 if t.dtype == jnp.float64 else 9, 1, -1):
        total = (-1) ** n / math.factorial(n) + total * small
    return jnp.where(is_small, total * small, 1 - s / jnp.where(is_small, 1, t))


def _tails(log_mean: Array, log_r: Array, targets: Array) -> tuple[Array, Array]:
    """The probabilities of at most, and of more than, `floor(targets)`."""
    whole = jnp.floor(jnp.maximum(targets, 0))
    # The success probability r / (r + m) against the share r / (r + y + 1).
    lower, upper = beta_tails(log_r, jnp.log1p(whole), count_shift(log_mean, whole))
    is_negative = targets < 0
    return jnp.where(is_negative, 0, lower), jnp.where(is_negative, 1, upper)


def _mean_difference(log_mean: Array, log_r: Array) -> Array:
    """`E|Y - Y'|` of two independent draws, from their characteristic function.

    `|n| = integral_0^pi (1 - cos(n t)) / (1 - cos t) dt / pi` for whole numbers, so it is the
    integral of `(1 - (1 + 2 a (1 - cos t))^-r) / (1 - cos t)` with `a = m (r + m) / r^2`. The bump
    at 0 is as wide as `1 / sqrt(a max(r, 1))`; `t = width sinh(s)` resolves it.
    """
    log_a = log_mean + jnp.logaddexp(log_r, log_mean) - 2 * log_r
    std = jnp.maximum(jnp.exp(0.5 * (log_a + jnp.maximum(log_r, 0))), 1)
    nodes, weights = (add_node_axis(x, log_mean) for x in gauss_legendre(64))
    end = jnp.arcsinh(math.pi * std)[None]
    t = jnp.sinh(nodes * end) / std[None]
    one_minus_cos = 2 * jnp.square(jnp.sin(0.5 * t))
    growth = jnp.log1p(2 * multiply_by_exp(one_minus_cos, log_a[None]))
    values = -jnp.expm1(-jnp.exp(log_r)[None] * growth) / one_minus_cos
    slope = jnp.cosh(nodes * end) / std[None]
    return end[0] / math.pi * jnp.sum(weights * slope * values, axis=0)
