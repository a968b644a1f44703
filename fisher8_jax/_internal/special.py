"""Special functions that stay accurate from the smallest to the largest arguments.

Log-gamma, digamma and trigamma of a large number are differences of huge terms. What a likelihood
needs is only what remains when the leading terms are taken away, so these functions compute the
remainders themselves. They take the logarithm of their argument, because that is what a network
predicts; every one of them is bounded or grows like that logarithm.

    log_gamma_remainder(log x) = lgamma(x) - (x ln x - x)
    digamma_remainder(log x)   = x (digamma(x) - ln x)        in (-1, -1/2)
    trigamma_remainder(log x)  = x^2 trigamma(x) - x          in (1/2, 1)

and, with the Bessel ratio `A(k) = I1(k) / I0(k)`,

    log_bessel_i0e(log k)      = ln(I0(k)) - k
    bessel_gap(log k)          = k (1 - A(k))
    bessel_curvature(log k)    = k^2 A'(k) = k^2 (1 - A^2) - k A

Each function's derivative with respect to `log x` is written in terms of the next one, so automatic
derivatives never differentiate a series or a cancellation.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import digamma, gammaln, i0e, i1e, polygamma

_LOG_2PI = math.log(2 * math.pi)

# Above it the Stirling series are exact to 1e-13; below it nothing cancels.
_STIRLING_LOG_X = math.log(20.0)


@jax.custom_jvp
def log_gamma_remainder(log_x: Array) -> Array:
    """`lgamma(x) - (x ln x - x)` with `x = exp(log_x)`."""
    is_large = log_x > _STIRLING_LOG_X
    small = jnp.where(is_large, 0, log_x)
    x = jnp.exp(small)
    body = gammaln(1 + x) - small - x * (small - 1)
    series = _odd_series(log_x, is_large, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188))
    return jnp.where(is_large, 0.5 * (_LOG_2PI - log_x) + series, body)


@jax.custom_jvp
def digamma_remainder(log_x: Array) -> Array:
    """`x (digamma(x) - ln x)` with `x = exp(log_x)`, between -1 (small x) and -1/2 (large x)."""
    is_large = log_x > _STIRLING_LOG_X
    small = jnp.where(is_large, 0, log_x)
    x = jnp.exp(small)
    body = x * (digamma(1 + x) - small) - 1
    series = _odd_series(log_x, is_large, (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132))
    return jnp.where(is_large, series - 0.5, body)


def digamma_tail(log_x: Array) -> Array:
    """`digamma_remainder + 1/2` with all its digits for large x, where it is about `-1/(12 x)`."""
    is_large = log_x > _STIRLING_LOG_X
    body = digamma_remainder(jnp.where(is_large, 0, log_x)) + 0.5
    coefficients = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)
    return jnp.where(is_large, _odd_series(log_x, is_large, coefficients), body)


def trigamma_remainder(log_x: Array) -> Array:
    """`x^2 trigamma(x) - x` with `x = exp(log_x)`, between 1 (small x) and 1/2 (large x)."""
    is_large = log_x > _STIRLING_LOG_X
    x = jnp.exp(jnp.where(is_large, 0, log_x))
    body = 1 + x * (x * polygamma(1, 1 + x) - 1)
    series = _odd_series(log_x, is_large, (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66))
    return jnp.where(is_large, 0.5 + series, body)


def exponential_bregman(curvature: Callable[[Array], Array], log_p: Array, log_q: Array) -> Array:
    """The integral of `curvature(u) (exp(log_q - u) - 1)` from `log_p` to `log_q`, never negative.

    With `trigamma_remainder` it is `f(q) - f(p) - digamma_remainder(p) (q/p - 1)` for the log-gamma
    remainder `f`: the part of a divergence that two shapes add. With `bessel_curvature` it is the
    same for `log_bessel_i0e`. By 8 nodes, so meant for parameters within a factor of a few.
    """
    nodes, weights = np.polynomial.legendre.leggauss(8)
    difference = log_q - log_p
    total = jnp.zeros_like(difference)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        growth = jnp.expm1(float(1 - node) * difference)
        total = total + float(weight) * curvature(log_p + float(node) * difference) * growth
    return difference * total


def log_gamma_bregman(log_p: Array, log_q: Array) -> Array:
    """`f(q) - f(p) - digamma_remainder(p) (q/p - 1)`, `f` the log-gamma remainder; at least 0."""
    difference = log_q - log_p
    is_close = jnp.abs(difference) < 1
    near = exponential_bregman(trigamma_remainder, log_p, jnp.where(is_close, log_q, log_p))
    slope = digamma_remainder(log_p) * jnp.expm1(difference)
    far = log_gamma_remainder(log_q) - log_gamma_remainder(log_p) - slope
    return jnp.where(is_close, near, far)


def log_rising(x: Array, a: Array) -> Array:
    """`ln(Gamma(x + a) / Gamma(x))` for positive `x` and `a`, with a small error relative to `a`.

    `x` is raised to where Stirling's series holds, and its difference is taken term by term.
    """
    is_wide = x.dtype == jnp.float64
    coefficients = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    raised = 16 if is_wide else 6
    # The product of 1 + a / (x + j), less 1.
    product = lax.fori_loop(
        0,
        raised,
        lambda j, product: product + (1 + product) * (a / (x + j.astype(x.dtype))),
        jnp.zeros_like(x + a),
    )
    x = x + raised
    p, q = 1 / x, 1 / (x + a)
    power, difference, total = p, -a * p * q, jnp.zeros_like(product)
    for coefficient in coefficients if is_wide else coefficients[:3]:
        total = total + coefficient * difference
        for _ in range(2):  # q^k - p^k from the difference of one power less
            difference = q * difference - a * p * q * power
            power = power * p
    leading = a * (jnp.log(x + a) - 1) + (x - 0.5) * jnp.log1p(a * p)
    return leading + total - jnp.log1p(product)


@jax.custom_jvp
def log_bessel_i0e(log_k: Array) -> Array:
    """`ln(I0(k)) - k` with `k = exp(log_k)`."""
    is_large = log_k > math.log(1e8)
    body = jnp.log(i0e(jnp.exp(jnp.where(is_large, 0, log_k))))
    return jnp.where(is_large, -0.5 * (_LOG_2PI + log_k), body)


def bessel_ratio(log_k: Array) -> Array:
    """`I1(k) / I0(k)` with `k = exp(log_k)`: the mean resultant length of a von Mises."""
    return jnp.exp(log_bessel_ratio(log_k))


def log_bessel_ratio(log_k: Array) -> Array:
    """`ln(I1(k) / I0(k))`; `ln(k / 2)` for small k, where the ratio itself underflows."""
    is_small, is_large = log_k < -10, log_k > math.log(1e8)
    k = jnp.exp(jnp.where(is_small | is_large, 0, log_k))
    body = jnp.log(i1e(k) / i0e(k))
    return jnp.where(is_small, log_k - math.log(2), jnp.where(is_large, 0, body))


@jax.custom_jvp
def bessel_gap(log_k: Array) -> Array:
    """`k (1 - A(k))`: `k` for small k, 1/2 for large k."""
    is_large = log_k > _bessel_switch(log_k)
    k = jnp.exp(jnp.where(is_large, 0, log_k))
    body = k * (1 - i1e(k) / i0e(k))
    coefficients = (1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024)
    return jnp.where(is_large, _inverse_series(log_k, is_large, coefficients), body)


def bessel_curvature(log_k: Array) -> Array:
    """`k^2 A'(k)`: `k^2 / 2` for small k, 1/2 for large k."""
    is_large = log_k > _bessel_switch(log_k)
    k = jnp.exp(jnp.where(is_large, 0, log_k))
    ratio = i1e(k) / i0e(k)
    body = k * (k * (1 - jnp.square(ratio)) - ratio)
    coefficients = (1 / 2, 1 / 4, 3 / 8, 25 / 32, 65 / 32, 3219 / 512)
    return jnp.where(is_large, _inverse_series(log_k, is_large, coefficients), body)


def _bessel_switch(log_k: Array) -> float:
    """Where the series in 1/k becomes more accurate than a difference that loses k^2 digits."""
    return math.log(1000.0) if log_k.dtype == jnp.float64 else math.log(20.0)


def _odd_series(log_x: Array, selected: Array, coefficients: tuple[float, ...]) -> Array:
    """`c0/x + c1/x^3 + c2/x^5 + ...` where selected."""
    inverse = jnp.exp(-jnp.where(selected, log_x, 1))
    square = jnp.square(inverse)
    total = jnp.zeros_like(inverse)
    for coefficient in reversed(coefficients):
        total = total * square + coefficient
    return total * inverse


def _inverse_series(log_x: Array, selected: Array, coefficients: tuple[float, ...]) -> Array:
    """`c0 + c1/x + c2/x^2 + ...` where selected."""
    inverse = jnp.exp(-jnp.where(selected, log_x, 1))
    total = jnp.zeros_like(inverse)
    for coefficient in reversed(coefficients):
        total = total * inverse + coefficient
    return total


log_gamma_remainder.defjvps(lambda tangent, _, log_x: digamma_remainder(log_x) * tangent)
digamma_remainder.defjvps(
    lambda tangent, value, log_x: (value + trigamma_remainder(log_x)) * tangent
)
log_bessel_i0e.defjvps(lambda tangent, _, log_k: -bessel_gap(log_k) * tangent)
bessel_gap.defjvps(lambda tangent, value, log_k: (value - bessel_curvature(log_k)) * tangent)
