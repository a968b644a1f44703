"""Both tails of the incomplete gamma and beta functions, each to a small relative error.

    gamma_tails(log_a, shift)         = P(a, x), Q(a, x)            at x = a exp(shift)
    beta_tails(log_a, log_b, shift)   = I_x(a, b), 1 - I_x(a, b)    at logit(x) = ln(a/b) + shift

`shift` is the distance from the mean in log or logit coordinates; callers know it more accurately
than `x` itself. The cdf of a Gamma, Poisson, Beta, negative binomial or Student-t is one of these
four numbers. Every loop has a fixed length, so the cost is known when compiling.

1. Where all parameters exceed a bound, the contour integral over the circle through the mean, by
   the midpoint rule. It converges geometrically for every size of the parameters, the normal limit
   included, because the pole at `x` is accounted for exactly.
2. Elsewhere the tail on the side of `x` comes from a power series or a continued fraction.
3. Near an end that holds almost all of the mass the other tail would be a difference of nearly
   equal numbers; it comes from the series of its logarithm.

The derivations are on the page about the families.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from fisher8_jax._internal.contour import contour_tails
from fisher8_jax._internal.deviance import beta_deviance, exp_excess, relative_shift
from fisher8_jax._internal.special import log_gamma_remainder, log_rising

Tails = tuple[Array, Array]


def gamma_density(log_a: Array, shift: Array) -> Array:
    """`x^a exp(-x) / Gamma(a)` at `x = a exp(shift)`: the slope of `P` in `shift`."""
    return jnp.exp(-_gamma_deviance(log_a, shift) - log_gamma_remainder(log_a))


def beta_density(log_a: Array, log_b: Array, shift: Array) -> Array:
    """`x^a (1-x)^b / Beta(a, b)`: the slope of `I_x` in `shift`."""
    log_c = jnp.logaddexp(log_a, log_b)
    remainders = log_gamma_remainder(log_a) + log_gamma_remainder(log_b)
    return jnp.exp(log_gamma_remainder(log_c) - remainders - beta_deviance(log_a, log_b, shift))


@jax.custom_jvp
def gamma_tails(log_a: Array, shift: Array) -> Tails:
    """`P(a, x)` and `Q(a, x)` at `x = a exp(shift)`."""
    is_large = log_a >= math.log(_bound(shift))

    def large() -> Tails:
        safe_a, safe_shift = jnp.where(is_large, log_a, 10), jnp.where(is_large, shift, 0)
        return contour_tails(jnp.exp(safe_a), None, safe_shift, _gamma_deviance(safe_a, safe_shift))

    def small() -> Tails:
        return _small_gamma(jnp.where(is_large, 0, log_a), jnp.where(is_large, 0, shift))

    return _pick(is_large, large, small)


def _small_gamma(log_a: Array, shift: Array) -> Tails:
    """The lower tail by its power series; far above the mean the upper by a continued fraction."""
    is_wide = shift.dtype == jnp.float64
    a = jnp.exp(log_a)
    # The limit keeps powers finite; beyond it exp(-x) has made both tails what they are.
    log_x = jnp.minimum(shift + log_a, 6.4 if is_wide else 4.4)
    x = jnp.exp(log_x)
    log_power = a * log_x - log_rising(jnp.ones_like(a), a)
    first = jnp.exp(log_power - x)
    is_far = (x > 1.5) & (x > a + 1)
    near_x, far_x = jnp.where(is_far, 0, x), jnp.where(is_far, x, a + 2)
    total = _backwards(
        80 if is_wide else 28, lambda i, total: 1 + total * near_x / (a + i), jnp.ones_like(x)
    )
    lower = first * total
    fraction = first * a / _legendre_fraction(a, far_x, 70 if is_wide else 16)
    near_zero = _upper_near_zero(a, log_power, jnp.zeros_like(x), near_x)
    upper = jnp.where(is_far, fraction, jnp.where(a < 1, near_zero, 1 - lower))
    return jnp.where(is_far | (upper < 0.5), 1 - upper, lower), upper


@jax.custom_jvp
def beta_tails(log_a: Array, log_b: Array, shift: Array) -> Tails:
    """`I_x(a, b)` and `1 - I_x(a, b)` at `logit(x) = log_a - log_b + shift`."""
    is_large = jnp.minimum(log_a, log_b) >= math.log(_bound(shift))

    def large() -> Tails:
        safe_a, safe_b = jnp.where(is_large, log_a, 10), jnp.where(is_large, log_b, 10)
        safe_shift = jnp.where(is_large, shift, 0)
        deviance = beta_deviance(safe_a, safe_b, safe_shift)
        return contour_tails(jnp.exp(safe_a), jnp.exp(safe_b), safe_shift, deviance)

    def small() -> Tails:
        safe_a, safe_b = jnp.where(is_large, 0, log_a), jnp.where(is_large, 0, log_b)
        return _small_beta(safe_a, safe_b, jnp.where(is_large, 0, shift))

    return _pick(is_large, large, small)


def _small_beta(log_a: Array, log_b: Array, shift: Array) -> Tails:
    """The tail on the side of `x` by a continued fraction.

    Near an end where almost all of the mass is, the other tail by the series of its logarithm.
    """
    is_upper = shift > 0
    # As an upper tail: the far parameter is that of the other end.
    log_far, log_near = jnp.where(is_upper, log_a, log_b), jnp.where(is_upper, log_b, log_a)
    far, near, size = jnp.exp(log_far), jnp.exp(log_near), jnp.abs(shift)
    logit = size + log_far - log_near
    x, y = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    excess = far * relative_shift(log_far - log_near, size)[0]  # (far + near) x - far
    steps = 70 if shift.dtype == jnp.float64 else 16
    density = beta_density(log_far, log_near, size)
    fraction = density / _beta_fraction(near, far, y, x, excess, steps)
    # The end that x is close to, of which `end` is the parameter and `other` that of the other.
    is_low = x < 0.5
    end, other = jnp.where(is_low, far, near), jnp.where(is_low, near, far)
    distance = jnp.where(is_low, x, y)
    is_near = (end < 1) & (distance < 0.2) & (other * distance < 1.5)
    log_distance = jax.nn.log_sigmoid(jnp.where(is_low, logit, -logit))
    one = jnp.ones_like(end)
    safe_end, safe_other = jnp.where(is_near, end, 1), jnp.where(is_near, other, 1)
    rising = log_rising(safe_other, safe_end) - log_rising(one, safe_end)
    distance = jnp.where(is_near, distance, 0)
    log_power = safe_end * log_distance + rising
    beyond = _upper_near_zero(safe_end, log_power, distance, distance * safe_other)
    is_used = is_near & (beyond < 0.5)
    tail = jnp.where(is_used, jnp.where(is_low, beyond, 1 - beyond), fraction)
    rest = jnp.where(is_used, jnp.where(is_low, 1 - beyond, beyond), 1 - fraction)
    return jnp.where(is_upper, rest, tail), jnp.where(is_upper, tail, rest)


def _pick(is_large: Array, large: Callable[[], Tails], small: Callable[[], Tails]) -> Tails:
    """Either where it belongs; a side that no element needs is not computed."""
    lower, upper = (jnp.zeros(x.shape, x.dtype) for x in jax.eval_shape(small))
    empty = (lower, upper)
    high = lax.cond(jnp.any(is_large), large, lambda: empty)
    low = lax.cond(jnp.all(is_large), lambda: empty, small)
    return jnp.where(is_large, high[0], low[0]), jnp.where(is_large, high[1], low[1])


def _upper_near_zero(a: Array, log_power: Array, slope: Array, offset: Array) -> Array:
    """`1 - exp(log_power) (1 + a sum_n c_n / (a + n))`, `c_n / c_(n-1) = slope - offset / n`."""
    total = _backwards(
        30 if a.dtype == jnp.float64 else 13,
        lambda n, total: (slope - offset / n) * (1 / (a + n) + total),
        jnp.zeros_like(a),
    )
    return -jnp.expm1(log_power) - a * jnp.exp(log_power) * total


def _legendre_fraction(a: Array, x: Array, steps: int) -> Array:
    """`x^a exp(-x) / Gamma(a, x)`, backwards from a fixed depth."""
    start = x + (2 * steps + 1) - a
    return _backwards(steps, lambda n, value: x + (2 * n - 1) - a - n * (n - a) / value, start)


def _beta_fraction(a: Array, b: Array, x: Array, y: Array, excess: Array, steps: int) -> Array:
    """`x^a y^b / (Beta(a, b) I_x(a, b))` with `excess = a - (a + b) x`, backwards.

    The even part of the usual fraction; it knows x and y apart, so nothing cancels when one of
    them is close to 1 (DiDonato and Morris 1992, equation 9).
    """

    def denominator(n: Array) -> Array:
        return (
            n
            + n * (b - n) * x / (a + (2 * n - 1))
            + (a + n) / (a + (2 * n + 1)) * (excess + 1 + n * (1 + y))
        )

    def numerator(n: Array) -> Array:
        # An x for each of two factors that may be as large as 1 / x: no square overflows.
        scale = (a + (n - 1)) / (a + (2 * n - 1)) * ((a + b + (n - 1)) * x / (a + (2 * n - 1)))
        return scale * n * ((b - n) * x)

    # The first denominator is written out: the formula divides by a - 1 to multiply by 0.
    value = _backwards(
        steps - 1,
        lambda n, value: denominator(n) + numerator(n + 1) / value,
        denominator(jnp.asarray(steps, a.dtype)),
    )
    return a / (a + 1) * (excess + 1) + numerator(jnp.ones((), a.dtype)) / value


def _backwards(count: int, step: Callable[[Array, Array], Array], start: Array) -> Array:
    """`step(1, step(2, ... step(count, start)))`, as a loop: unrolled it is slow to compile."""

    def body(i: Array, value: Array) -> Array:
        return step((count - i).astype(value.dtype), value)

    return lax.fori_loop(0, count, body, start)


def _bound(like: Array) -> int:
    """From where the contour integral is exact to the last digits."""
    return 20 if like.dtype == jnp.float64 else 10


def _gamma_deviance(log_a: Array, shift: Array) -> Array:
    return jnp.exp(log_a) * exp_excess(jnp.minimum(shift, 80.0))


def differentiate_tails(function: Callable[..., Tails], density: Callable[..., Array]) -> None:
    """The derivative in the shift is the density, that in a parameter is the algorithm's own.

    It only multiplies a tangent, so it can be transposed although it is found in forward mode,
    where a branch that was not selected cannot do harm.
    """
    plain = function.fun  # type: ignore[attr-defined]

    def jvp(primals, tangents):
        total = jnp.zeros_like(primals[-1])
        for i, tangent in enumerate(tangents):
            if type(tangent) is SymbolicZero:
                continue
            if i == len(primals) - 1:
                slope = density(*primals)
            else:
                along = tuple(jnp.full_like(x, j == i) for j, x in enumerate(primals))
                _, (slope, _) = jax.jvp(plain, primals, along)
            total = total + slope * tangent
        return function(*primals), (total, -total)

    function.defjvp(jvp, symbolic_zeros=True)  # type: ignore[attr-defined]


differentiate_tails(gamma_tails, gamma_density)
differentiate_tails(beta_tails, beta_density)
