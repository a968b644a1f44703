"""Likelihood, natural score and tails of the families in 50 digits, written from their definitions.

Nothing here is arranged to be stable: enough digits make every formula stable. Parameters and
targets come as exact numbers.
"""

import functools
from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 50

Number = Any
Answer = dict[str, Any]


def sigmoid(x: Number) -> Number:
    return 1 / (1 + mp.exp(-x))


def _natural(information: list[list[Number]], score: list[Number]) -> Answer:
    """The natural score, and the standard deviation that each of its entries has."""
    inverse = mp.inverse(mp.matrix(information))
    return {
        "score": list(inverse * mp.matrix(score)),
        "spread": [mp.sqrt(inverse[i, i]) for i in range(len(score))],
    }


def _tail(
    log_density: Callable[[Number], Number], start: Number, sign: int, width: Number
) -> Number:
    """The integral from `start` outwards, by pieces that grow with the distance."""
    ends = [start + sign * width * step for step in (0, 0.3, 1, 2, 4, 8, 16, 32, 64, 256)]
    with mp.workdps(25):
        value = mp.quad(lambda t: mp.exp(log_density(t)), ends, maxdegree=6)
    return sign * value


def gamma_tails(a: Number, x: Number) -> tuple[Number, Number]:
    """`P(a, x)` and `Q(a, x)` for shapes above 1: an integral over `ln t` on the smaller side."""
    log_gamma = mp.loggamma(a)

    def log_density(t: Number) -> Number:
        return a * t - mp.exp(t) - log_gamma

    sign = -1 if x < a else 1
    tail = _tail(log_density, mp.log(x), sign, 1 / max(abs(a - x), mp.sqrt(a)))
    return (tail, 1 - tail) if x < a else (1 - tail, tail)


def student(location: Number, log_scale: Number, log_df: Number, y: Number) -> Answer:
    v, scale = mp.exp(log_df), mp.exp(log_scale)
    z = (y - location) / scale
    q = z * z / v
    nll = log_scale + (v + 1) / 2 * mp.log1p(q) + log_df / 2 + mp.log(mp.beta(mp.mpf(1) / 2, v / 2))
    scores = [
        -(v + 1) * z / (v + z * z) / scale,
        1 - (v + 1) * z * z / (v + z * z),
        v / 2 * mp.log1p(q)
        - (v + 1) / 2 * q / (1 + q)
        + mp.mpf(1) / 2
        + v / 2 * (mp.psi(0, v / 2) - mp.psi(0, (v + 1) / 2)),
    ]
    f_uu = v * v * (mp.psi(1, v / 2) - mp.psi(1, (v + 1) / 2)) / 4 - v * (v + 5) / (
        2 * (v + 1) * (v + 3)
    )
    f_su = -2 * v / ((v + 1) * (v + 3))
    information = [
        [(v + 1) / (v + 3) / scale**2, 0, 0],
        [0, 2 * v / (v + 3), f_su],
        [0, f_su, f_uu],
    ]
    fixed = _natural([row[:2] for row in information[:2]], scores[:2])
    return {"nll": nll, **_natural(information, scores), "fixed": fixed, "z": z, "df": v}


def student_divergence(p: list[Number], q: list[Number]) -> Number:
    """`KL(p || q)` of `(location, log_scale, log_df)` each, an integral over `ln|z|`."""
    shift, relative = (q[0] - p[0]) * mp.exp(-p[1]), q[1] - p[1]
    v, w, scale = mp.exp(p[2]), mp.exp(q[2]), mp.exp(relative)
    norms = {df: mp.log(df) / 2 + mp.log(mp.beta(mp.mpf(1) / 2, df / 2)) for df in (v, w)}

    def log_density(z: Number, df: Number) -> Number:
        return -(df + 1) / 2 * mp.log1p(z * z / df) - norms[df]

    def integrand(u: Number) -> Number:
        total = mp.mpf(0)
        for z in (mp.exp(u), -mp.exp(u)):
            own = log_density(z, v)
            ratio = own - log_density((z - shift) / scale, w) + relative
            total += mp.exp(own + u) * (mp.expm1(-ratio) + ratio)
        return total

    bends = [mp.log(v) / 2, mp.log(abs(shift) + mp.mpf("1e-30")), relative + q[2] / 2, mp.mpf(0)]
    first, last = min(bends) - 45, max(bends) + 12
    near = {x + d for x in bends for d in (-9, -5, -3, -2, -1, 0, 1, 2, 3, 5, 9)}
    far = {last + d / min(v, w) for d in (0.3, 1, 3, 10, 30, 60)}
    with mp.workdps(20):
        ends = sorted({first, last, *(x for x in near if first < x < last), *far})
        return mp.quad(integrand, ends, maxdegree=4)


def gamma(log_mean: Number, log_k: Number, y: Number) -> Answer:
    k, m = mp.exp(log_k), mp.exp(log_mean)
    d = mp.log(y) - log_mean
    nll = mp.loggamma(k) - k * log_k + k * (y / m - d) + mp.log(y)
    score = [k * (1 - y / m), k * (mp.psi(0, k) - log_k - 1 + y / m - d)]
    information = [[k, 0], [0, k * k * mp.psi(1, k) - k]]
    return {"nll": nll, **_natural(information, score), "a": k, "x": k * y / m}


def beta(logit_mean: Number, log_c: Number, y: Number) -> Answer:
    c, m = mp.exp(log_c), sigmoid(logit_mean)
    n = 1 - m
    a, b = m * c, n * c
    nll = mp.log(mp.beta(a, b)) - (a - 1) * mp.log(y) - (b - 1) * mp.log1p(-y)
    along_a = mp.psi(0, a) - mp.psi(0, c) - mp.log(y)
    along_b = mp.psi(0, b) - mp.psi(0, c) - mp.log1p(-y)
    score = [m * n * c * (along_a - along_b), a * along_a + b * along_b]
    t_a, t_b, t_c = mp.psi(1, a), mp.psi(1, b), mp.psi(1, c)
    j = [[m * n * c, a], [-m * n * c, b]]  # of (a, b) in (logit, log c)
    inner = [[t_a - t_c, -t_c], [-t_c, t_b - t_c]]
    information = [
        [sum(j[i][r] * inner[i][k] * j[k][s] for i in range(2) for k in range(2)) for s in range(2)]
        for r in range(2)
    ]
    return {"nll": nll, **_natural(information, score), "a": a, "b": b}


def poisson(log_rate: Number, y: Number) -> Answer:
    rate = mp.exp(log_rate)
    nll = rate - y * log_rate + mp.loggamma(y + 1)
    return {"nll": nll, **_natural([[rate]], [rate - y]), "rate": rate}


def zero_inflated(logit: Number, log_rate: Number, y: Number) -> Answer:
    h, rate = sigmoid(logit), mp.exp(log_rate)
    e = mp.exp(-rate)
    p0 = h + (1 - h) * e
    if y == 0:
        nll, score = -mp.log(p0), [-h * (1 - h) * (1 - e) / p0, (1 - h) * rate * e / p0]
    else:
        nll = rate - y * log_rate + mp.loggamma(y + 1) - mp.log(1 - h)
        score = [h, rate - y]
    off = -h * (1 - h) * rate * e / p0
    information = [
        [h * h * (1 - h) * (1 - e) / p0, off],
        [off, (1 - h) * rate * (1 - h * rate * e / p0)],
    ]
    answer = _natural(information, score)
    # The rate has no score at 0; what a positive count's score spreads by is the yardstick.
    answer["spread"][1] /= mp.sqrt((1 - h) * (1 - e))
    return {"nll": nll, **answer, "h": h, "rate": rate}


@functools.cache
def _information_about_r(m: Number, r: Number) -> Number:
    """`r^2 E[trigamma(r) - trigamma(r + Y)] - r m / (r + m)`, by its integral over `ln x`."""

    def integrand(log_x: Number) -> Number:
        x = mp.exp(log_x)
        s = -mp.expm1(-x / r)
        chance = -mp.expm1(-r * mp.log1p(s * m / r))
        return x * x * mp.exp(-x) * (chance / s - m * r / (r + m))

    low = min(mp.log(r), mp.log(r / m), mp.mpf(0)) - 25
    steps = 14
    ends = [low + (mp.log(120) - low) * i / steps for i in range(steps + 1)]
    return mp.quad(integrand, ends, maxdegree=6)


def negative_binomial(log_mean: Number, log_r: Number, y: Number) -> Answer:
    m, r = mp.exp(log_mean), mp.exp(log_r)
    nll = mp.loggamma(y + 1) + mp.loggamma(r) - mp.loggamma(y + r)
    nll += r * mp.log1p(m / r) + y * mp.log1p(r / m)
    along_r = mp.psi(0, r) - mp.psi(0, r + y) + mp.log1p(m / r) - (m - y) / (r + m)
    information = [[r * m / (r + m), 0], [0, _information_about_r(m, r)]]
    score = [r * (m - y) / (r + m), r * along_r]
    return {"nll": nll, **_natural(information, score), "m": m, "r": r}


def von_mises(location: Number, log_k: Number, y: Number) -> Answer:
    k, d = mp.exp(log_k), y - location
    with mp.workdps(30):
        i0, i1 = mp.besseli(0, k), mp.besseli(1, k)
        log_i0, ratio = mp.log(i0), i1 / i0
        d_ratio = 1 - ratio**2 - ratio / k
    nll = log_i0 - k * mp.cos(d) + mp.log(2 * mp.pi)
    information = [[k * ratio, 0], [0, k * k * d_ratio]]
    score = [-k * mp.sin(d), k * (ratio - mp.cos(d))]
    half_turn = mp.pi

    def log_density(t: Number) -> Number:
        return k * mp.cos(t) - log_i0 - mp.log(2 * mp.pi)

    start = min(abs(d), half_turn)
    end = min(half_turn, start + 40 / mp.sqrt(k))
    pieces = [start + (end - start) * i / 12 for i in range(13)]
    with mp.workdps(25):
        tail = mp.quad(lambda t: mp.exp(log_density(t)), pieces)
    cdf = tail if d < 0 else 1 - tail
    return {"nll": nll, **_natural(information, score), "cdf": cdf}
