"""Both tails of the incomplete gamma and beta functions, each to a small relative error.

    gamma_tails(log_a, shift)         = P(a, x), Q(a, x)            at x = a exp(shift)
    beta_tails(log_a, log_b, shift)   = I_x(a, b), 1 - I_x(a, b)    at logit(x) = ln(a/b) + shift

`shift` is the distance from the mean in log or logit coordinates; callers know it more accurately
than `x` itself. The cdf of a Gamma, Poisson, Beta, negative binomial or Student-t is one of these
four numbers. Every loop has a fixed length, so the cost is known when compiling.

1. Where both parameters exceed a bound, the contour integral over the circle through the mean, by
   the midpoint rule. It converges geometrically for every size of the parameters, the normal limit
   included, because the pole at `x` is accounted for exactly.
2. A smaller parameter is raised by adding the terms of the power series.
3. The tail that this would leave as a difference of nearly equal numbers comes from a continued
   fraction, or near 0 from the series of its logarithm.

The derivations are on the page about the families.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from fisher8_jax._contour import contour_tails
from fisher8_jax._deviance import beta_deviance, exp_excess, relative_shift
from fisher8_jax._special import log_gamma_remainder, log_rising

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
    """`P(a, x)` and `Q(a, x)` at `x = a exp(shift)`.

    Example:
        >>> import jax.numpy as jnp
        >>> lower, upper = gamma_tails(jnp.zeros(1), jnp.log(jnp.array([3.0])))
        >>> upper  # exp(-3)
        Array([0.049787...], dtype=float32)
    """
    bound = _bound(shift)
    a = jnp.exp(log_a)
    is_small = a < bound
    raised = jnp.where(is_small, a + bound, a)
    # Raising the parameter moves the mean, so the same x has another shift.
    moved = jnp.where(is_small, shift + (log_a - jnp.log(raised)), shift)
    deviance = _gamma_deviance(jnp.where(is_small, jnp.log(raised), log_a), moved)
    lower, upper = contour_tails(raised, None, moved, deviance)
    small = _small_gamma(jnp.where(is_small, log_a, 0), jnp.where(is_small, shift, 0), lower)
    return jnp.where(is_small, small[0], lower), jnp.where(is_small, small[1], upper)


def _small_gamma(log_a: Array, shift: Array, lower: Array) -> Tails:
    """The tails at `a` from the lower tail at `a + bound`."""
    is_wide = shift.dtype == jnp.float64
    a = jnp.exp(log_a)
    # The limit keeps powers finite; beyond it exp(-x) has made both tails what they are.
    log_x = jnp.minimum(shift + log_a, 6.4 if is_wide else 4.4)
    x = jnp.exp(log_x)
    log_power = a * log_x - log_rising(jnp.ones_like(a), a)
    first = jnp.exp(log_power - x)
    total = _backwards(
        _bound(shift) - 1, lambda i, total: 1 + total * x / (a + i), jnp.ones_like(x)
    )
    lower = lower + first * total
    is_far = (x > 1.5) & (x > a + 1)
    far_x = jnp.where(is_far, x, a + 2)
    fraction = first * a / _legendre_fraction(a, far_x, 70 if is_wide else 16)
    near_x = jnp.where(is_far, 0, x)
    near_zero = _upper_near_zero(a, log_power, lambda n: -near_x / n)
    upper = jnp.where(is_far, fraction, jnp.where(a < 1, near_zero, 1 - lower))
    return jnp.where(upper < 0.5, 1 - upper, lower), upper


@jax.custom_jvp
def beta_tails(log_a: Array, log_b: Array, shift: Array) -> Tails:
    """`I_x(a, b)` and `1 - I_x(a, b)` at `logit(x) = log_a - log_b + shift`.

    Example:
        >>> import jax.numpy as jnp
        >>> lower, upper = beta_tails(jnp.zeros(1), jnp.zeros(1), jnp.array([-1.0]))
        >>> lower  # of a uniform distribution: sigmoid(-1)
        Array([0.26894...], dtype=float32)
    """
    bound = _bound(shift)
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    small_a, small_b = a < bound, b < bound
    high_a, high_b = jnp.where(small_a, a + bound, a), jnp.where(small_b, b + bound, b)
    log_high_a = jnp.where(small_a, jnp.log(high_a), log_a)
    log_high_b = jnp.where(small_b, jnp.log(high_b), log_b)
    middle = jnp.where(small_a, shift + (log_a - log_high_a), shift)
    moved = jnp.where(small_b, middle - (log_b - log_high_b), middle)
    deviance = beta_deviance(log_high_a, log_high_b, moved)
    lower, upper = contour_tails(high_a, high_b, moved, deviance)
    # Raising a takes from the lower tail, raising b from the upper one.
    density = beta_density(log_a, log_b, shift)
    logit = shift + log_a - log_b
    x, y = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    up, raised_density = _power_terms(a, b, x, density)
    raised_density = jnp.where(small_a, raised_density, density)
    down, _ = _power_terms(b, high_a, y, raised_density)
    up, down = jnp.where(small_a, up, 0), jnp.where(small_b, down, 0)
    lower, upper = lower + (up - down), upper + (down - up)
    # Of the two the smaller one, and as the far parameter that of the other end.
    is_upper = lower > 0.5
    log_far, log_near = jnp.where(is_upper, log_a, log_b), jnp.where(is_upper, log_b, log_a)
    signed, small = jnp.where(is_upper, shift, -shift), jnp.where(is_upper, upper, lower)
    is_lost = jnp.where(is_upper, small_a, small_b)
    log_far, log_near = jnp.where(is_lost, log_far, 0), jnp.where(is_lost, log_near, 0)
    far_tail = _far_tail(log_far, log_near, jnp.where(is_lost, signed, 1), small, density)
    small = jnp.where(is_lost, far_tail, small)
    return jnp.where(is_upper, 1 - small, small), jnp.where(is_upper, small, 1 - small)


def _power_terms(a: Array, b: Array, x: Array, density: Array) -> Tails:
    """`I_x(a, b) - I_x(a + bound, b)`, a sum of positive terms, and the density at `a + bound`."""
    # The limit keeps powers finite where the density has vanished.
    bound, product = _bound(x), jnp.minimum(x * (a + b), 800.0 if x.dtype == jnp.float64 else 120.0)

    def add(i: Array, state: Tails) -> Tails:
        total, term = state
        total = total + term
        return total, term * (product + x * i) / (a + (i + 1))

    start = (jnp.zeros_like(x), density / a)
    total, term = lax.fori_loop(0, bound, lambda i, state: add(i.astype(x.dtype), state), start)
    return total, term * (a + bound)


def _far_tail(log_a: Array, log_b: Array, shift: Array, direct: Array, density: Array) -> Array:
    """The upper tail for a small `a`, where it is not safe to subtract the lower one from 1."""
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    logit = shift + log_a - log_b
    x, y = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    excess = a * relative_shift(log_a - log_b, shift)[0]  # (a + b) x - a
    is_far = jnp.where(a < 1, (x > 0.2) | (b * x > 1.5), excess > 0)
    steps = 70 if shift.dtype == jnp.float64 else 16
    fraction = density / _beta_fraction(b, a, y, x, excess, steps)
    log_power = a * jax.nn.log_sigmoid(logit) - log_rising(jnp.ones_like(a), a) + log_rising(b, a)
    near_x, near_b = jnp.where(is_far, 0, x), jnp.where(is_far, 1, b)
    near_zero = _upper_near_zero(a, log_power, lambda n: near_x * (n - near_b) / n)
    return jnp.where(is_far, fraction, jnp.where(a < 1, near_zero, direct))


def _upper_near_zero(a: Array, log_power: Array, ratio: Callable[[Array], Array]) -> Array:
    """`1 - exp(log_power) (1 + a sum_n c_n / (a + n))`, `c_n` the product of the ratios up to n."""
    terms = 30 if a.dtype == jnp.float64 else 13
    total = _backwards(terms, lambda n, total: ratio(n) * (1 / (a + n) + total), jnp.zeros_like(a))
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
        scale = (a + (n - 1)) / (a + (2 * n - 1)) * ((a + b + (n - 1)) / (a + (2 * n - 1)))
        return scale * n * (b - n) * jnp.square(x)

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
    """From where the contour integral is exact to the last digits, and by how much to raise."""
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
