"""The zero-inflated Poisson: counts with more zeros than a rate explains."""

import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.bisection import smallest_count
from fisher8_jax._internal.deviance import beta_deviance, exp_excess
from fisher8_jax._internal.numerics import Scaled, materialize, multiply_by_exp
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import Entry
from fisher8_jax.families._poisson import (
    counts,
    draw_counts,
    poisson_distances,
    poisson_nll,
    poisson_tails,
    relative_residual,
)
from fisher8_jax.families._quadrature import gauss_legendre
from fisher8_jax.families._targets import safe_log
from fisher8_jax.families._triangular import Rows, TriangularFamily


@family
class ZeroInflatedPoisson(TriangularFamily):
    """0 with probability `h = sigmoid(logit_zero)`, else a Poisson count of rate `exp(log_rate)`.

    With `e = exp(-rate)`, the probability of a zero `p0 = h + (1-h) e` and the chance
    `q = 1 - e - rate e` of at least two events, in the coordinates `(logit_zero, log_rate)`

        F    = | h^2 (1-h) (1-e) / p0               -h (1-h) rate e / p0            |
               | -h (1-h) rate e / p0       (1-h) rate (1 - h rate e / p0)          |

        F^-1 = (1/q) * | (p0 - h rate e) / (h^2 (1-h))       e / (h (1-h))          |
                       |       e / (h (1-h))             (1-e) / ((1-h) rate)       |

    and the natural gradient of the NLL is

        targets = 0:  (-1/h, 0)
        targets > 0:  (p0 + (1-h) rate e - targets e) / (h (1-h) q),
                      (rate - (1-e) targets) / ((1-h) rate q)

    so a zero moves only the probability of the extra zeros.

    Args:
        logit_zero: predicted log-odds of an extra zero.
        log_rate: predicted natural logarithms of the rate of the Poisson part.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = ZeroInflatedPoisson(jnp.zeros(1), jnp.zeros(1))
        >>> dist.mean, dist.variance
        (Array([0.5], dtype=float32), Array([0.75], dtype=float32))

    Reference:
        Lambert (1992), Zero-inflated Poisson regression; the inverse is derived in the
        documentation of the families.
    """

    logit_zero: Array
    log_rate: Array

    support = "counts"
    starts: ClassVar = {"log_rate": safe_log}

    @property
    def rate(self) -> Array:
        """`exp(log_rate)`, the rate of the Poisson part."""
        return jnp.exp(self.log_rate)

    @property
    def mean(self) -> Array:
        """`(1 - h) rate`."""
        return jax.nn.sigmoid(-self.logit_zero) * self.rate

    @property
    def variance(self) -> Array:
        """`(1 - h) rate (1 + h rate)`."""
        return self.mean * (1 + jax.nn.sigmoid(self.logit_zero) * self.rate)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`-ln(h + (1-h) e)` for zeros, `-ln(1-h)` plus the Poisson NLL for others.

        Infinite for what is not a count. No term is a constant, so `constant` changes nothing.
        """
        safe, is_inside = counts(targets)
        log_some = jax.nn.log_sigmoid(-self.logit_zero)
        positive = poisson_nll(self.log_rate, safe) - log_some
        values = jnp.where(safe == 0, -_log_zero(self), positive)
        return jnp.where(is_inside, values, jnp.inf)

    def fisher_rows(self) -> Rows:
        """The extra zeros come before what is left for the rate."""
        h, log_some = jax.nn.sigmoid(self.logit_zero), jax.nn.log_sigmoid(-self.logit_zero)
        positive, p0 = -jnp.expm1(-self.rate), jnp.exp(_log_zero(self))
        one_event = jnp.exp(self.log_rate - self.rate)
        own = lax.rsqrt(_some_over_rate(self.rate))
        return (
            (Entry(h * jnp.sqrt(positive / p0), 0.5 * log_some),),
            (
                Entry(-one_event * lax.rsqrt(p0 * positive), 0.5 * log_some),
                Entry(own, 0.5 * (log_some + _log_two_or_more(self.log_rate))),
            ),
        )

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The closed forms of the class docstring; nan for what is not a count."""
        safe, is_count = counts(targets)
        rate, e = self.rate, jnp.exp(-self.rate)
        some = jax.nn.sigmoid(-self.logit_zero)
        log_h, log_some = (jax.nn.log_sigmoid(x) for x in (self.logit_zero, -self.logit_zero))
        log_scale = -log_some - _log_two_or_more(self.log_rate)
        is_zero = safe == 0
        h = jax.nn.sigmoid(self.logit_zero)
        # p0 = e + h (1 - e), and whole numbers are subtracted first.
        zero = jnp.where(is_zero, -1, -h * jnp.expm1(-rate) + e * ((1 - safe) + some * rate))
        count = jnp.where(is_zero, 0, _count_residual(self.log_rate, safe))
        return {
            "logit_zero": Scaled(
                jnp.where(is_count, zero, jnp.nan), jnp.where(is_zero, 0, log_scale) - log_h
            ),
            "log_rate": Scaled(jnp.where(is_count, count, jnp.nan), log_scale),
        }

    def kl(self, other: Self) -> Array:
        """The closed form: whether zero or not, then the positive counts given that.

        The divergence of two Bernoullis plus the chance of a positive count times that of two
        zero-truncated Poissons, both never negative.
        """
        p, q = self, other
        log_zero, log_some = _log_zero(p), _log_positive(p)
        shift = (_log_positive(q) - _log_zero(q)) - (log_some - log_zero)
        return beta_deviance(log_some, log_zero, shift) + jnp.exp(log_some) * _truncated_kl(p, q)

    def cdf(self, targets: Array) -> Array:
        """The probability of at most `floor(targets)`."""
        return _tails(self.logit_zero, self.log_rate, targets)[0]

    def quantile(self, probability: Array) -> Array:
        """The smallest count whose cdf reaches `probability`, as a float; by bisection."""
        return smallest_count(lambda n: _tails(self.logit_zero, self.log_rate, n), probability)

    def draw(self, key: Array) -> Array:
        """Counts as floating-point numbers of the predictions' dtype."""
        zero_key, count_key = jax.random.split(key)
        is_extra = jax.random.bernoulli(zero_key, jax.nn.sigmoid(self.logit_zero))
        return jnp.where(is_extra, 0, draw_counts(count_key, self.rate))

    def crps(self, targets: Array) -> Array:
        """From the distances of the Poisson part to the target, to 0 and to itself."""
        h, some = jax.nn.sigmoid(self.logit_zero), jax.nn.sigmoid(-self.logit_zero)
        to_target, to_itself = poisson_distances(self.log_rate, targets)
        between = 2 * h * some * self.rate + jnp.square(some) * to_itself
        return h * jnp.abs(targets) + some * to_target - 0.5 * between


def _log_zero(dist: ZeroInflatedPoisson) -> Array:
    """`ln(p0)`."""
    log_some = jax.nn.log_sigmoid(-dist.logit_zero)
    return jnp.logaddexp(jax.nn.log_sigmoid(dist.logit_zero), log_some - dist.rate)


def _log_positive(dist: ZeroInflatedPoisson) -> Array:
    """`ln(1 - p0)`."""
    is_small = dist.log_rate < -10
    rate = jnp.where(is_small, 1, dist.rate)
    log_some = jnp.where(is_small, dist.log_rate, jnp.log(-jnp.expm1(-rate)))
    return jax.nn.log_sigmoid(-dist.logit_zero) + log_some


def _truncated_kl(p: ZeroInflatedPoisson, q: ZeroInflatedPoisson) -> Array:
    """The divergence of two Poissons, both given a positive count.

    `g(l) = ln(exp(exp(l)) - 1)` is the log-normaliser in `l = log_rate` and `g'` the mean, so it is
    the integral of `(l_q - l) g''(l)` from `l_p` to `l_q`.
    """
    difference = q.log_rate - p.log_rate
    is_close = jnp.abs(difference) < 1
    safe = jnp.where(is_close, difference, 0)
    nodes, weights = gauss_legendre(8)
    near = jnp.zeros_like(difference)
    for node, weight in zip(nodes, weights, strict=True):
        variance = _truncated_variance(p.log_rate + float(node) * safe)
        near = near + float(weight * (1 - node)) * variance
    mean = 1 / _some_over_rate(p.rate)
    # ln(1 - exp(-rate)) without its underflow.
    log_some = [jnp.log(_some_over_rate(x.rate)) + x.log_rate for x in (p, q)]
    # rate_q - rate_p - mean difference, with the mean close to rate_p where that is large.
    rest = (mean - p.rate) * difference
    far = multiply_by_exp(exp_excess(difference), p.log_rate) - rest + log_some[1] - log_some[0]
    return jnp.where(is_close, jnp.square(safe) * near, far)


def _truncated_variance(log_rate: Array) -> Array:
    """The variance of a Poisson count given that it is positive: `rate q / (1 - e)^2`."""
    log_some = 2 * (jnp.log(_some_over_rate(jnp.exp(log_rate))) + log_rate)
    return jnp.exp(log_rate + _log_two_or_more(log_rate) - log_some)


def _count_residual(log_rate: Array, y: Array) -> Array:
    """`1 - y (1 - exp(-rate)) / rate` for counts from 1."""
    rate = jnp.exp(log_rate)
    small = (1 - y) + y * (exp_excess(-rate) / rate)
    large = materialize(relative_residual(log_rate, y)) + y * jnp.exp(-rate - log_rate)
    return jnp.where(log_rate < 0, small, large)


def _log_two_or_more(log_rate: Array) -> Array:
    """`ln(1 - exp(-rate) (1 + rate))`, the chance of at least two events; `2 log_rate` below."""
    is_small = log_rate < 0
    rate = jnp.exp(jnp.where(is_small, log_rate, 0))
    # (exp(rate) - 1 - rate) / rate^2 by its series, which converges fast for rates below 1.
    series = jnp.zeros_like(rate)
    for n in range(20, 1, -1):
        series = series * rate + 1 / math.factorial(n)
    large = jnp.exp(jnp.where(is_small, 0, log_rate))
    body = jnp.log1p(-jnp.exp(-large) * (1 + large))
    return jnp.where(is_small, 2 * log_rate - rate + jnp.log(series), body)


def _some_over_rate(rate: Array) -> Array:
    """`(1 - exp(-rate)) / rate`, 1 at 0."""
    return -jnp.expm1(-rate) / rate


def _tails(logit_zero: Array, log_rate: Array, targets: Array) -> tuple[Array, Array]:
    lower, upper = poisson_tails(log_rate, targets)
    some = jax.nn.sigmoid(-logit_zero)
    lower = jnp.minimum(jax.nn.sigmoid(logit_zero) + some * lower, 1)
    lower = jnp.where(targets < 0, 0, lower)
    return lower, jnp.where(targets < 0, 1, some * upper)
