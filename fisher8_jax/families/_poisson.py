"""The Poisson distribution: counts with one predicted rate."""

from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import i0e, i1e

from fisher8_jax._internal.bisection import smallest_count
from fisher8_jax._internal.deviance import exp_excess, log_ratio
from fisher8_jax._internal.incomplete import gamma_tails
from fisher8_jax._internal.numerics import Scaled, materialize, multiply_by_exp
from fisher8_jax._internal.special import log_gamma_remainder
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._targets import safe_log

_LARGE_RATE = 2.0**20  # JAX draws integers up to 2^31


@family
class Poisson(DiagonalFamily):
    """Counts of mean `rate = exp(log_rate)`.

    In the coordinate `log_rate` the Fisher information and its inverse are

        F    = rate
        F^-1 = 1 / rate

    so the natural gradient of the NLL is `1 - targets / rate`.

    Args:
        log_rate: predicted natural logarithms of the mean.

    Example:
        >>> import jax.numpy as jnp
        >>> Poisson(jnp.zeros(2)).nll(jnp.array([0, 1])).round(4)
        Array([1., 1.], dtype=float32)

    Reference:
        McCullagh and Nelder (1989), Generalized Linear Models, chapter 6.
    """

    log_rate: Array

    support = "counts"
    starts: ClassVar = {"log_rate": safe_log}

    @property
    def rate(self) -> Array:
        """`exp(log_rate)`."""
        return jnp.exp(self.log_rate)

    @property
    def mean(self) -> Array:
        """The rate."""
        return self.rate

    @property
    def variance(self) -> Array:
        """The rate."""
        return self.rate

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`rate - targets * log_rate + ln(targets!)`; inf for what is not a count.

        As a deviance `targets (exp(d) - 1 - d)`, `d = ln(rate / targets)`, plus what is left of the
        factorial, so that nothing cancels at large counts.

        No term is a constant, so `constant` changes nothing.
        """
        safe, is_inside = counts(targets)
        return jnp.where(is_inside, poisson_nll(self.log_rate, safe), jnp.inf)

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """The rate."""
        return (Entry(1.0, self.log_rate),)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`1 - targets / rate`, nan for what is not a count."""
        return {"log_rate": relative_residual(self.log_rate, targets)}

    def kl(self, other: Self) -> Array:
        """`rate (exp(d) - 1 - d)` with `d` the difference of the log-rates."""
        p, q = self, other
        return multiply_by_exp(exp_excess(q.log_rate - p.log_rate), p.log_rate)

    def cdf(self, targets: Array) -> Array:
        """The probability of at most `floor(targets)`."""
        return poisson_tails(self.log_rate, targets)[0]

    def quantile(self, probability: Array) -> Array:
        """The smallest count whose cdf reaches `probability`, as a float; by bisection."""
        return smallest_count(lambda n: poisson_tails(self.log_rate, n), probability)

    def draw(self, key: Array) -> Array:
        """Counts as floating-point numbers of the predictions' dtype."""
        return draw_counts(key, self.rate)

    def crps(self, targets: Array) -> Array:
        """The closed form of Wei and Held (2014), with scaled Bessel functions."""
        to_target, to_itself = poisson_distances(self.log_rate, targets)
        return to_target - 0.5 * to_itself


def draw_counts(key: Array, rate: Array) -> Array:
    """Poisson draws in the dtype of the rate, also beyond the integers that JAX draws.

    Above a rate of 2^20 they are rounded normal ones with the skewness of the counts; what is left
    out is a thousandth of a standard deviation times a thousandth.
    """
    is_large = rate > _LARGE_RATE
    counts = jax.random.poisson(key, jnp.where(is_large, 1, rate), rate.shape).astype(rate.dtype)
    z = jax.random.normal(jax.random.fold_in(key, 1), rate.shape, rate.dtype)
    normal = rate * (1 + z * lax.rsqrt(jnp.maximum(rate, 1))) + (jnp.square(z) - 1) / 6
    return jnp.where(is_large, jnp.round(normal), counts)


def poisson_distances(log_rate: Array, targets: Array) -> tuple[Array, Array]:
    """`E|X - targets|` and `E|X - X'|` of Poisson counts."""
    dist = Poisson(log_rate)
    rate, density = dist.rate, jnp.exp(-dist.nll(targets))
    lower, upper = poisson_tails(log_rate, targets)
    residual = multiply_by_exp(-materialize(relative_residual(log_rate, targets)), log_rate)
    to_target = residual * (lower - upper) + 2 * rate * density
    return to_target, 2 * rate * (i0e(2 * rate) + i1e(2 * rate))


def counts(targets: Array) -> tuple[Array, Array]:
    """The targets with 0 in place of what is not a count, and where they are counts."""
    is_count = (targets >= 0) & (targets == jnp.floor(targets)) & (targets < jnp.inf)
    return jnp.where(is_count, targets, 0), is_count


def poisson_nll(log_rate: Array, y: Array) -> Array:
    """The NLL of counts `y`, known to be counts."""
    positive = jnp.where(y == 0, 1, y)
    log_y = jnp.log(positive)
    deviance = positive * exp_excess(-log_ratio(positive, log_rate))
    # ln(y!) = y ln(y) - y + ln(y) + remainder.
    values = deviance + log_y + log_gamma_remainder(log_y)
    return jnp.where(y == 0, jnp.exp(log_rate), values)


def relative_residual(log_mean: Array, targets: Array) -> Scaled:
    """`1 - targets / mean`, with a scale taken out where the quotient is large."""
    safe, is_count = counts(targets)
    log_scale = jnp.maximum(-log_mean, 0)
    value = jnp.exp(-log_scale) - safe * jnp.exp(-log_mean - log_scale)
    difference = log_ratio(jnp.where(safe == 0, 1, safe), log_mean)
    is_close = (safe > 0) & (jnp.abs(difference) < 0.25)
    value = jnp.where(is_close, -jnp.expm1(difference), value)
    return Scaled(jnp.where(is_count, value, jnp.nan), jnp.where(is_close, 0, log_scale))


def count_shift(log_mean: Array, whole: Array) -> Array:
    """`ln((whole + 1) / mean)` for whole numbers from 0."""
    positive = jnp.maximum(whole, 1)
    difference = log_ratio(positive, log_mean) + jnp.log1p(1 / positive)
    return jnp.where(whole < 1, -log_mean, difference)


def poisson_tails(log_rate: Array, targets: Array) -> tuple[Array, Array]:
    """The probabilities of at most, and of more than, `floor(targets)`: `Q` and `P`."""
    whole = jnp.floor(jnp.maximum(targets, 0))
    above, below = gamma_tails(jnp.log1p(whole), -count_shift(log_rate, whole))
    is_negative = targets < 0
    return jnp.where(is_negative, 0, below), jnp.where(is_negative, 1, above)
