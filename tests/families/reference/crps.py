"""The CRPS of the families in many digits: `python -m tests.families.reference.crps [family ...]`.

adds the columns `crps` and `spread_crps`, `E|Y - y| - E|Y - Y'| / 2` and its second term, which is
what a right prediction has to expect. By textbook forms, of which the library uses others: partial
means by the cdf of a neighbouring shape, the second term for counts by the characteristic function
(the library's way for the negative binomial alone),

    E|Y - Y'| = (1/pi) integral_0^pi (1 - |phi(t)|^2) / (1 - cos t) dt.
"""

import functools
import sys
from collections.abc import Callable

import mpmath as mp
import scipy.special as sp

from tests.families.reference import elementary, exact, files

Number = exact.Number
# `E|Y - y|` and `E|Y - Y'| / 2`.
Parts = tuple[Number, Number]


def _gamma_sides(a: Number, x: Number) -> Number:
    """`P(a, x) - Q(a, x)`."""
    if a < 50:
        with mp.workdps(30):
            lower = mp.gammainc(a, 0, x, regularized=True)
        return 2 * lower - 1
    lower, upper = exact.gamma_tails(a, x)
    return lower - upper


def _beta_sides(a: Number, b: Number, x: Number) -> Number:
    """`I_x(a, b) - I_(1-x)(b, a)`, each in double precision from its own side."""
    a, b, x, rest = float(a), float(b), float(x), float(1 - x)
    if x < rest:
        return mp.mpf(sp.betainc(a, b, x)) - mp.mpf(sp.betaincc(a, b, x))
    return mp.mpf(sp.betaincc(b, a, rest)) - mp.mpf(sp.betainc(b, a, rest))


def _normal_sides(z: Number) -> Number:
    return mp.erf(z / mp.sqrt(2))


def gamma(log_mean: Number, log_k: Number, y: Number) -> Parts:
    k, m = mp.exp(log_k), mp.exp(log_mean)
    x = k * y / m
    half_gini = m / k / mp.beta(mp.mpf(1) / 2, k)
    return y * _gamma_sides(k, x) - m * _gamma_sides(k + 1, x), half_gini


def beta(logit: Number, log_c: Number, y: Number) -> Parts:
    m, c = exact.sigmoid(logit), mp.exp(log_c)
    a, b = m * c, (1 - m) * c
    half_gini = 2 * mp.beta(2 * a, 2 * b) / c / mp.beta(a, b) ** 2
    return y * _beta_sides(a, b, y) - m * _beta_sides(a + 1, b, y), half_gini


def _half_difference(one_minus_square: Callable[[Number], Number], width: Number) -> Number:
    """`E|Y - Y'| / 2` of counts, `1 - |phi|^2` a function of `1 - cos t` that bends at `width`."""
    ends = sorted({mp.mpf(0), mp.pi, *(min(mp.pi, width * s) for s in _STEPS)})
    with mp.workdps(25):
        value = mp.quad(
            lambda t: one_minus_square(2 * mp.sin(t / 2) ** 2) / (2 * mp.sin(t / 2) ** 2), ends
        )
    return value / (2 * mp.pi)


_STEPS = (0.1, 0.5, 1, 2, 4, 8, 16, 32, 64, 256, 1024, 1e5, 1e7)


@functools.cache
def _poisson_half_difference(rate: Number) -> Number:
    return _half_difference(lambda v: -mp.expm1(-2 * rate * v), 1 / mp.sqrt(rate))


def _poisson_to_target(rate: Number, y: Number) -> Number:
    """`E|Y - y|`; `P(Y <= y)` is `Q(y + 1, rate)`."""
    below = _gamma_sides(y, rate) if y > 0 else mp.mpf(1)
    return rate * below - y * _gamma_sides(y + 1, rate)


def poisson(log_rate: Number, y: Number) -> Parts:
    rate = mp.exp(log_rate)
    return _poisson_to_target(rate, y), _poisson_half_difference(rate)


def zero_inflated(logit: Number, log_rate: Number, y: Number) -> Parts:
    h, rate = exact.sigmoid(logit), mp.exp(log_rate)
    to_target = h * y + (1 - h) * _poisson_to_target(rate, y)
    return to_target, h * (1 - h) * rate + (1 - h) ** 2 * _poisson_half_difference(rate)


@functools.cache
def _negative_half_difference(m: Number, r: Number) -> Number:
    slope = 2 * m * (r + m) / r**2
    return _half_difference(
        lambda v: -mp.expm1(-r * mp.log1p(slope * v)), 1 / mp.sqrt(slope * max(r, 1))
    )


def negative_binomial(log_mean: Number, log_r: Number, y: Number) -> Parts:
    m, r = mp.exp(log_mean), mp.exp(log_r)
    chance = r / (r + m)
    below = _beta_sides(r + 1, y, chance) if y > 0 else mp.mpf(-1)
    to_target = y * _beta_sides(r, y + 1, chance) - m * below
    return to_target, _negative_half_difference(m, r)


def student(location: Number, log_scale: Number, log_df: Number, y: Number) -> Parts:
    v, scale = mp.exp(log_df), mp.exp(log_scale)
    if v <= 1:
        return mp.nan, mp.nan
    z = abs(y - location) / scale
    half = mp.mpf(1) / 2
    sides = _beta_sides(half, v / 2, z * z / (v + z * z)) / 2 + half
    density = (1 + z * z / v) ** (-(v + 1) / 2) / mp.sqrt(v) / mp.beta(half, v / 2)
    spread = 2 * mp.sqrt(v) / (v - 1) * mp.beta(half, v - half) / mp.beta(half, v / 2) ** 2
    return scale * (z * sides + 2 * density * (v + z * z) / (v - 1)), scale * spread


def student_fixed(location: Number, log_scale: Number, df: Number, y: Number) -> Parts:
    return student(location, log_scale, mp.log(df), y)


@functools.cache
def _angles_apart(k: Number) -> Number:
    """`E d(Y, Y') / 2`; the angle between two draws has the density `I0(2 k cos(t/2))`."""
    with mp.workdps(25):
        log_scale = 2 * mp.log(mp.besseli(0, k))
        ends = _from_zero(1 / mp.sqrt(k))
        return (
            mp.quad(
                lambda t: t * mp.exp(mp.log(mp.besseli(0, 2 * k * mp.cos(t / 2))) - log_scale), ends
            )
            / mp.pi
            / 2
        )


def _from_zero(width: Number) -> list[Number]:
    return sorted({mp.mpf(0), mp.pi, *(min(mp.pi, width * s) for s in (0.5, 1, 2, 4, 8, 16))})


def von_mises(location: Number, log_k: Number, y: Number) -> Parts:
    k = mp.exp(log_k)
    d = abs(y - location)
    d = min(d, 2 * mp.pi - d)
    with mp.workdps(25):
        log_scale = mp.log(2 * mp.pi * mp.besseli(0, k))
        width = 1 / mp.sqrt(k)
        inner = {s * min(mp.pi, width * f) for f in (0, 0.5, 1, 2, 4, 8, 16) for s in (-1, 1)}
        ends = sorted({-mp.pi, mp.pi, d, d - mp.pi, *inner})

        def integrand(t: Number) -> Number:
            apart = abs(t - d)
            return min(apart, 2 * mp.pi - apart) * mp.exp(k * mp.cos(t) - log_scale)

        to_target = mp.quad(integrand, ends)
    return to_target, _angles_apart(k)


CRPS: dict[str, Callable[..., Parts]] = {
    "Gamma": gamma,
    "Beta": beta,
    "Poisson": poisson,
    "ZeroInflatedPoisson": zero_inflated,
    "NegativeBinomial": negative_binomial,
    "StudentT": student_fixed,
    "StudentTLearnedDf": student,
    "VonMises": von_mises,
}


def columns(name: str, table: files.Table) -> files.Table:
    """The CRPS of every row of a table, and its second term; nan where it is infinite."""
    keys = [key for key in table if key.startswith("parameter")] + ["targets"]
    rows = zip(*(table[key] for key in keys), strict=True)
    # A table holds nine digits of float32 numbers, which are what is meant.
    parts = [CRPS[name](*(mp.mpf(elementary.single(x)) for x in row)) for row in rows]
    return {"crps": [float(a - b) for a, b in parts], "spread_crps": [float(b) for _, b in parts]}


if __name__ == "__main__":
    for table_name in sys.argv[1:] or CRPS:
        content = files.read(table_name)
        files.write(table_name, content | columns(table_name, content))
