"""Differences of nearly equal numbers, computed as what they are: small.

A likelihood at a large mean compares a target with it. In float32 the logarithm of 8,886,123 has an
error of 5e-7, three thousand times more than what decides about such a count. `log_ratio` finds
the difference to the last digit of the target; the other functions are the convex remainders that
it goes into:

    exp_excess(x)     = exp(x) - 1 - x
    log1p_deficit(u)  = u - ln(1 + u)

A `deviance` is a divergence times a concentration, a sum of such remainders, never negative. The
derivations are on the page about the families.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

# ln 2 in two parts; the first has few digits, so that a product with an exponent is exact.
_LOG_2_HEAD = {4: 0.693145751953125, 8: float.fromhex("0x1.62e42feep-1")}
_LOG_2_TAIL = {4: 1.42860682030941723212e-6, 8: 1.90821492927058770002e-10}
_HEAD_MASK = {4: (jnp.int32, -(1 << 12)), 8: (jnp.int64, -(1 << 27))}


def exp_excess(x: Array) -> Array:
    """`exp(x) - 1 - x`, without cancellation near 0."""
    is_small = jnp.abs(x) < 0.5
    small = jnp.where(is_small, x, 0)
    total = jnp.zeros_like(x)
    for n in range(_terms(x, 9, 16), 1, -1):
        total = total * small + 1 / math.factorial(n)
    return jnp.where(is_small, total * jnp.square(small), jnp.expm1(x) - x)


def log1p_deficit(u: Array) -> Array:
    """`u - ln(1 + u)`, without cancellation near 0."""
    return u * log1p_deficit_ratio(u)


def log1p_deficit_ratio(u: Array) -> Array:
    """`(u - ln(1 + u)) / u`, which is `u / 2` near 0 and does not vanish before `u` does.

    With `s = u / (2 + u)` it is `s - 2 s / (2 + u) (s / 3 + s^3 / 5 + ...)`.
    """
    is_small = jnp.abs(u) < 0.3
    small = jnp.where(is_small, u, 0)
    s = small / (2 + small)
    square = jnp.square(s)
    total = jnp.zeros_like(s)
    for n in range(_terms(u, 4, 11), -1, -1):
        total = total * square + 1 / (2 * n + 3)
    series = s - 2 * square / (2 + small) * total
    large = jnp.where(is_small, 1, u)
    return jnp.where(is_small, series, 1 - jnp.log1p(large) / large)


@jax.custom_jvp
def log_ratio(targets: Array, log_mean: Array) -> Array:
    """`ln(targets) - log_mean` for positive targets, to a relative error of a few roundings.

    Where the two are close it is `ln(1 + x)` with `x = targets / exp(log_mean) - 1`, and `x` is
    found from `exp(log_mean)` with more digits than the dtype has.
    """
    size = targets.dtype.itemsize
    plain = jnp.log(targets) - log_mean
    is_close = (jnp.abs(plain) < 0.25) & (jnp.abs(log_mean) < 80)
    log_mean = jnp.where(is_close, log_mean, 0)
    targets = jnp.where(is_close, targets, 1)
    exponent = jnp.round(log_mean / math.log(2))
    reduced = log_mean - exponent * _LOG_2_HEAD[size]  # exact
    tail = exponent * _LOG_2_TAIL[size]
    r = reduced - tail
    r_rest = (reduced - r) - tail
    mantissa = jnp.ldexp(targets, -exponent.astype(jnp.int32))
    # exp(r) - 1 - r = head^2 / 2 + (head + r) rest / 2 + r^3 / 6 + ..., the first term exact.
    unit = 2.0**12 if size == 4 else 2.0**26
    head = jnp.round(r * unit) / unit
    cubic = jnp.zeros_like(r)
    for n in range(_terms(r, 9, 16), 2, -1):
        cubic = cubic * r + 1 / math.factorial(n)
    rest = 0.5 * (head + r) * (r - head) + cubic * r * jnp.square(r) + r_rest * jnp.exp(r)
    excess = (((mantissa - 1) - r) - 0.5 * jnp.square(head)) - rest
    return jnp.where(is_close, jnp.log1p(excess * jnp.exp(-r)), plain)


@log_ratio.defjvp
def _log_ratio_jvp(primals, tangents):
    targets, _ = primals
    return log_ratio(*primals), tangents[0] / targets - tangents[1]


@jax.custom_jvp
def logit_difference(targets: Array, logit: Array) -> Array:
    """`ln(targets / (1 - targets)) - logit` for targets in (0, 1), as accurate as `log_ratio`."""
    other = 1 - targets
    other_rest = (1 - other) - targets
    odds = targets / other
    # The remainder of the division, and what 1 - targets lost.
    rest = _subtract_product(targets, odds, other) - odds * other_rest
    return log_ratio(odds, logit) + rest / targets


@logit_difference.defjvp
def _logit_difference_jvp(primals, tangents):
    targets, _ = primals
    slope = 1 / (targets * (1 - targets))
    return logit_difference(*primals), slope * tangents[0] - tangents[1]


@jax.custom_jvp
def beta_deviance(log_a: Array, log_b: Array, shift: Array) -> Array:
    """`c KL(m || x)` of two Bernoullis, `c = a + b`, `m = a / c`, `logit(x) = logit(m) + shift`.

    As the sum `a deficit(x/m - 1) + b deficit(y/n - 1)` with `n = 1 - m` and `y = 1 - x`.
    """
    part_a, part_b = _deviance_parts(log_a, log_b, shift)
    return part_a + part_b


@beta_deviance.defjvp
def _beta_deviance_jvp(primals, tangents):
    log_a, log_b, shift = primals
    part_a, part_b = _deviance_parts(*primals)
    slope = _linear_part(log_a, log_b, shift)
    tangent = part_a * tangents[0] + part_b * tangents[1] + slope * tangents[2]
    return part_a + part_b, tangent


def relative_shift(log_odds: Array, shift: Array) -> tuple[Array, Array]:
    """`x/m - 1` and `1 - y/n` where `logit(m) = log_odds` and `logit(x) = log_odds + shift`."""
    m, n = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
    decay, gap = jnp.exp(-jnp.abs(shift)), -jnp.expm1(-jnp.abs(shift))
    # (exp(shift) - 1) / (n + m exp(shift)), of which only decaying exponentials are formed.
    total = jnp.where(shift > 0, m + n * decay, n + m * decay)
    scale = jnp.where(shift > 0, gap, -gap) / total
    # Where both terms of the total have vanished, the smaller one of the two from its own quotient.
    is_lost, moved = total < 1e-30, log_odds + shift
    up = jnp.where(is_lost & (shift < 0), -gap * jax.nn.sigmoid(-moved), n * scale)
    return up, jnp.where(is_lost & (shift > 0), gap * jax.nn.sigmoid(moved), m * scale)


def _linear_part(log_a: Array, log_b: Array, shift: Array) -> Array:
    """`a (x/m - 1) = b (1 - y/n)`, by the side that does not overflow."""
    up, down = relative_shift(log_a - log_b, shift)
    return jnp.where(shift > 0, jnp.exp(log_b) * down, jnp.exp(log_a) * up)


def log_relative(log_odds: Array, shift: Array) -> tuple[Array, Array]:
    """`ln(x/m)` and `ln(y/n)`, in the words of `relative_shift`."""
    up, down = relative_shift(log_odds, shift)
    is_close = jnp.abs(shift) < 1
    near_up, near_down = (jnp.log1p(jnp.where(is_close, x, 0)) for x in (up, -down))
    far_up, far_down = _log_far(log_odds, shift)
    return jnp.where(is_close, near_up, far_up), jnp.where(is_close, near_down, far_down)


def _log_far(log_odds: Array, shift: Array) -> tuple[Array, Array]:
    """The same by logarithms, far away, where the ratio may have rounded to 0."""
    log_m, log_n = jax.nn.log_sigmoid(log_odds), jax.nn.log_sigmoid(-log_odds)
    return -jnp.logaddexp(log_m, log_n - shift), -jnp.logaddexp(log_n, log_m + shift)


def _deviance_parts(log_a: Array, log_b: Array, shift: Array) -> tuple[Array, Array]:
    log_odds = log_a - log_b
    up, down = relative_shift(log_odds, shift)
    is_close = jnp.abs(shift) < 1
    log_up, log_down = _log_far(log_odds, shift)
    linear = _linear_part(log_a, log_b, shift)
    near_a = log1p_deficit(jnp.where(is_close, up, 0))
    near_b = log1p_deficit(jnp.where(is_close, -down, 0))
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    far_a, far_b = linear - a * log_up, -linear - b * log_down
    return jnp.where(is_close, a * near_a, far_a), jnp.where(is_close, b * near_b, far_b)


def _subtract_product(x: Array, a: Array, b: Array) -> Array:
    """`x - a b` with `x` close to the product, from products of halves, which are exact."""
    (a_head, a_tail), (b_head, b_tail) = _split(a), _split(b)
    return ((x - a_head * b_head) - a_head * b_tail - a_tail * b_head) - a_tail * b_tail


def _split(x: Array) -> tuple[Array, Array]:
    """`x` as the sum of two numbers of half as many digits."""
    integer, mask = _HEAD_MASK[x.dtype.itemsize]
    bits = lax.bitcast_convert_type(x, integer)
    head = lax.bitcast_convert_type(bits & jnp.asarray(mask, integer), x.dtype)
    return head, x - head


def _terms(x: Array, narrow: int, wide: int) -> int:
    return wide if x.dtype == jnp.float64 else narrow
