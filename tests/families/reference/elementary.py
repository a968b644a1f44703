"""Rows for the families whose answers are elementary functions, each from its definition.

Here all of likelihood, cdf, natural score, CRPS and the divergence from another member of the
family (the columns `other_...`) are computed with 50 digits; that of two mixtures by an integral.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp
import numpy as np
import scipy.special as sp

from tests.families.reference.exact import Number, sigmoid

SCORES = (-5.5, -4.0, -2.0, -0.7, 0.0, 0.6, 2.0, 4.0, 5.5)
LOGS = (-12, -9.5, -6, -3, -1, 0.5, 2, 3, 5, 7, 9, 11, 13, 14.5, 16)
# How far the other distribution of a divergence is, in its parameters.
STEPS = (1e-3, 0.1, 2.0)

Row = tuple[list[Any], float, dict[str, Any]]


def single(x: float) -> float:
    """The nearest float32 number."""
    return float(np.float32(x))


def _row(
    nll: Number, cdf: Number, scores: list, spreads: list, crps: tuple[Number, Number], **more: Any
) -> dict[str, Any]:
    """`crps` are `E|Y - y|` and `E|Y - Y'| / 2`."""
    named = {f"score_{i}": _plain(x) for i, x in enumerate(scores)}
    named |= {f"spread_{i}": _plain(x) for i, x in enumerate(spreads)}
    named |= {"crps": float(crps[0] - crps[1]), "spread_crps": float(crps[1])}
    return {"nll": float(nll), "cdf": float(cdf), **named, **more}


def _plain(x: Any) -> Any:
    return [float(item) for item in x] if isinstance(x, list) else float(x)


def _divergence(
    kl: Callable[..., Number], parameters: list[float], scales: list[float], rng: Any
) -> dict[str, float]:
    """Another member of the family, and the divergence from it."""
    step = rng.choice(STEPS)
    other = [
        single(x + step * scale * rng.normal()) for x, scale in zip(parameters, scales, strict=True)
    ]
    named = {f"other_{i}": x for i, x in enumerate(other)}
    return {**named, "kl": float(kl(*map(mp.mpf, parameters), *map(mp.mpf, other)))}


def _normal_cdf(z: Number) -> Number:
    return mp.erfc(-z / mp.sqrt(2)) / 2


def _normal_density(z: Number) -> Number:
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def _kl_gaussian(m: Number, s: Number, m2: Number, s2: Number) -> Number:
    return (s2 - s + mp.exp(s - s2) + (m - m2) ** 2 * mp.exp(-s2) - 1) / 2


def gaussian() -> Iterator[Row]:
    rng = np.random.default_rng(21)
    for log_variance, score in itertools.product(LOGS, SCORES):
        mean = single(rng.normal() * np.exp(rng.uniform(-3, 7)))
        log_variance = single(log_variance + rng.uniform(-0.5, 0.5))
        y = single(mean + score * np.exp(0.5 * log_variance))
        m, s, t = map(mp.mpf, (mean, log_variance, y))
        std = mp.exp(s / 2)
        z = (t - m) / std
        nll = (s + z * z + mp.log(2 * mp.pi)) / 2
        crps = _apart(t - m, std), std / mp.sqrt(mp.pi)
        scores, spreads = [m - t, 1 - z * z], [std, mp.sqrt(2)]
        kl = _divergence(_kl_gaussian, [mean, log_variance], [float(std), 1.0], rng)
        yield [mean, log_variance], y, _row(nll, _normal_cdf(z), scores, spreads, crps, **kl)


def _kl_laplace(m: Number, s: Number, m2: Number, s2: Number) -> Number:
    shift = abs(m - m2)
    return s2 - s + shift * mp.exp(-s2) + mp.exp(s - s2 - shift * mp.exp(-s)) - 1


def laplace() -> Iterator[Row]:
    rng = np.random.default_rng(22)
    for log_scale, score in itertools.product(LOGS, SCORES):
        mean = single(rng.normal() * np.exp(rng.uniform(-3, 7)))
        log_scale = single(log_scale + rng.uniform(-0.5, 0.5))
        tail = sp.ndtr(-abs(score))
        y = single(mean - np.sign(score) * np.exp(log_scale) * np.log(2 * tail))
        m, s, t = map(mp.mpf, (mean, log_scale, y))
        z = (t - m) / mp.exp(s)
        half = mp.exp(-abs(z)) / 2
        crps = mp.exp(s) * (abs(z) + mp.exp(-abs(z))), mp.exp(s) * mp.mpf(3) / 4
        scores = [mp.sign(m - t) * mp.exp(s), 1 - abs(z)]
        kl = _divergence(_kl_laplace, [mean, log_scale], [float(np.exp(log_scale)), 1.0], rng)
        cdf = half if z < 0 else 1 - half
        answer = _row(s + abs(z) + mp.log(2), cdf, scores, [mp.exp(s), mp.mpf(1)], crps, **kl)
        yield [mean, log_scale], y, answer


def log_normal() -> Iterator[Row]:
    """Up to a standard deviation of 7 of the logarithm; the mean leaves float32 beyond that."""
    rng = np.random.default_rng(23)
    for log_variance, score in itertools.product((-12, -9, -6, -3, -1, 0, 1, 2, 3, 4), SCORES):
        location = single(rng.uniform(-12, 16))
        log_variance = single(log_variance + rng.uniform(-0.5, 0))
        y = single(np.exp(location + score * np.exp(0.5 * log_variance)))
        m, s, t = map(mp.mpf, (location, log_variance, y))
        std = mp.exp(s / 2)
        z = (mp.log(t) - m) / std
        nll = (s + z * z + mp.log(2 * mp.pi)) / 2 + mp.log(t)
        mean = mp.exp(m + mp.exp(s) / 2)
        to_target = t * (2 * _normal_cdf(z) - 1) + mean * (1 - 2 * _normal_cdf(z - std))
        crps = to_target, mean * mp.erf(std / 2)
        scores, spreads = [m - mp.log(t), 1 - z * z], [std, mp.sqrt(2)]
        kl = _divergence(_kl_gaussian, [location, log_variance], [float(std), 1.0], rng)
        yield [location, log_variance], y, _row(nll, _normal_cdf(z), scores, spreads, crps, **kl)


def _kl_weibull(a: Number, s: Number, a2: Number, s2: Number) -> Number:
    k, k2 = mp.exp(s), mp.exp(s2)
    value = s - k * a - s2 + k2 * a2 + (k - k2) * (a - mp.euler / k)
    return value + mp.exp(k2 * (a - a2) + mp.loggamma(1 + k2 / k)) - 1


def weibull() -> Iterator[Row]:
    """Shapes from the one whose mean leaves float32 to one whose spread is a few thousand steps."""
    rng = np.random.default_rng(24)
    shift, spread = 1 - mp.euler, mp.pi**2 / 6
    for log_k, score in itertools.product((-3, -2, -1, 0, 0.5, 2, 3, 5, 7, 8.5), SCORES):
        log_scale, log_k = single(rng.uniform(-12, 16)), single(log_k + rng.uniform(-0.4, 0.4))
        log_hazard = np.log(-np.log(sp.ndtr(-score)))
        log_y = log_scale + log_hazard * np.exp(-log_k)
        if abs(log_y) > 85:
            continue
        y = single(np.exp(log_y))
        a, s, t = map(mp.mpf, (log_scale, log_k, y))
        k = mp.exp(s)
        w = k * (mp.log(t) - a)
        x = mp.exp(w)
        mean = mp.exp(a) * mp.gamma(1 + 1 / k)
        with mp.workdps(30):
            part = mp.gammainc(1 + 1 / k, 0, x, regularized=True)
        crps = t * (1 - 2 * mp.exp(-x)) + mean * (1 - 2 * part), mean * (1 - mp.mpf(2) ** (-1 / k))
        along = [k * (1 - x), w * (x - 1) - 1]
        second = (shift * along[0] / k + along[1]) / spread
        scores = [(along[0] / k + shift * second) / k, second]
        spreads = [mp.sqrt((spread + shift**2) / spread) / k, 1 / mp.sqrt(spread)]
        kl = _divergence(_kl_weibull, [log_scale, log_k], [float(1 / k), 1.0], rng)
        answer = _row(x - w - s + mp.log(t), -mp.expm1(-x), scores, spreads, crps, **kl)
        yield [log_scale, log_k], y, answer


def bernoulli() -> Iterator[Row]:
    rng = np.random.default_rng(25)

    def kl(a: Number, b: Number) -> Number:
        p, q = sigmoid(a), sigmoid(b)
        return p * mp.log(p / q) + (1 - p) * mp.log((1 - p) / (1 - q))

    for logit, y in itertools.product(np.linspace(-16, 16, 33), (0.0, 1.0)):
        logit = single(logit + rng.uniform(-0.5, 0.5))
        p = sigmoid(mp.mpf(logit))
        nll = -mp.log(p if y else 1 - p)
        answer = _row(
            nll, 1 if y else 1 - p, [(p - y) / (p * (1 - p))], [1 / mp.sqrt(p * (1 - p))],
            (abs(p - y), p * (1 - p)), **_divergence(kl, [logit], [1.0], rng),
        )  # fmt: skip
        yield [logit], y, answer


def _softmax(logits: list[float]) -> list[Number]:
    powers = [mp.exp(mp.mpf(x)) for x in logits]
    return [x / sum(powers) for x in powers]


def _inverse_logits(w: list[Number]) -> list[Number]:
    """Square roots of the diagonal of the pseudo-inverse of `diag(w) - w w'`."""
    n, total = len(w), sum(1 / x for x in w)
    return [mp.sqrt((1 - mp.mpf(2) / n) / x + total / n**2) for x in w]


def _vectors(rng: Any, logits: list[float]) -> list[float]:
    step = rng.choice(STEPS)
    return [single(x + step * rng.normal()) for x in logits]


def categorical() -> Iterator[Row]:
    rng = np.random.default_rng(26)
    for width, y in itertools.product((0.1, 1, 3, 6, 9, 12) * 4, (0.0, 1.0, 2.0)):
        logits = [single(x) for x in rng.uniform(-width, width, 3)]
        other = _vectors(rng, logits)
        p, q, at = _softmax(logits), _softmax(other), int(y)
        scores = [(mp.mpf(1) / 3 - (i == at)) / p[at] for i in range(3)]
        below = [sum(p[: i + 1]) for i in range(3)]
        half = sum(below[i] * (1 - below[i]) for i in range(2))
        crps = sum((below[i] - (i >= at)) ** 2 for i in range(2)) + half, half
        kl = float(sum(a * mp.log(a / b) for a, b in zip(p, q, strict=True)))
        answer = _row(-mp.log(p[at]), below[at], [scores], [_inverse_logits(p)], crps)
        yield [logits], y, answer | {"other_0": other, "kl": kl}


class _Mixture:
    """A mixture of Gaussians in many digits."""

    def __init__(self, logits: list[float], means: list[float], logs: list[float]):
        self.weights, self.means = _softmax(logits), [mp.mpf(x) for x in means]
        self.stds = [mp.exp(mp.mpf(x) / 2) for x in logs]

    def parts(self, y: Number) -> list[Number]:
        return [
            w * _normal_density((y - m) / s) / s
            for w, m, s in zip(self.weights, self.means, self.stds, strict=True)
        ]

    def cdf(self, y: Number) -> Number:
        triples = zip(self.weights, self.means, self.stds, strict=True)
        return sum(w * _normal_cdf((y - m) / s) for w, m, s in triples)

    def crps(self, y: Number) -> tuple[Number, Number]:
        n = range(len(self.weights))
        to_target = sum(self.weights[i] * _apart(y - self.means[i], self.stds[i]) for i in n)
        pairs = sum(
            self.weights[i] * self.weights[j] * _apart(
                self.means[i] - self.means[j], mp.hypot(self.stds[i], self.stds[j])
            )
            for i, j in itertools.product(n, n)
        )  # fmt: skip
        return to_target, pairs / 2

    def ends(self) -> list[Number]:
        steps = (-14, -9, -6, -4, -2, -1, 0, 1, 2, 4, 6, 9, 14)
        return [m + s * d for m, s in zip(self.means, self.stds, strict=True) for d in steps]


def _apart(mean: Number, std: Number) -> Number:
    """`E|N(mean, std^2)|`."""
    z = mean / std
    return std * (2 * _normal_density(z) + z * mp.erf(z / mp.sqrt(2)))


def _kl_mixtures(p: _Mixture, q: _Mixture) -> Number:
    """Pieces around every component of both, at its own scale."""
    with mp.workdps(20):
        ends = sorted({*p.ends(), *q.ends()})
        inside = [x for x in ends if min(p.ends()) <= x <= max(p.ends())]

        def integrand(y: Number) -> Number:
            a, b = sum(p.parts(y)), sum(q.parts(y))
            return a * mp.log(a / b) - a + b if a else mp.mpf(0)

        # Minus a plus b: integrates to the mass of b outside, which is added back.
        value = mp.quad(integrand, inside, maxdegree=5)
        outside = 1 - q.cdf(inside[-1]) + q.cdf(inside[0])
    return value + outside


def gaussian_mixture() -> Iterator[Row]:
    rng = np.random.default_rng(27)
    for width, score in itertools.product((0.5, 2, 6, 12), SCORES):
        logits = [single(x) for x in rng.uniform(-3, 3, 3)]
        logs = [single(x) for x in rng.uniform(-width, width, 3)]
        means = [single(x) for x in rng.normal(size=3) * np.exp(rng.uniform(-2, 2))]
        at = rng.integers(3)
        y = single(means[at] + score * np.exp(0.5 * logs[at]))
        mixture, t = _Mixture(logits, means, logs), mp.mpf(y)
        parts, w = mixture.parts(t), mixture.weights
        ratios = [x / sum(parts) / v for x, v in zip(parts, w, strict=True)]
        zs = [(t - m) / s for m, s in zip(mixture.means, mixture.stds, strict=True)]
        scores = [
            [sum(ratios) / 3 - x for x in ratios],
            [x * (m - t) for x, m in zip(ratios, mixture.means, strict=True)],
            [x * (1 - z * z) for x, z in zip(ratios, zs, strict=True)],
        ]
        spreads = [
            _inverse_logits(w),
            [s / mp.sqrt(x) for s, x in zip(mixture.stds, w, strict=True)],
            [mp.sqrt(2 / x) for x in w],
        ]
        other = [_vectors(rng, logits), _near(rng, means, logs), _vectors(rng, logs)]
        kl = float(_kl_mixtures(mixture, _Mixture(*other)))
        answer = _row(-mp.log(sum(parts)), mixture.cdf(t), scores, spreads, mixture.crps(t))
        named = {f"other_{i}": x for i, x in enumerate(other)}
        yield [logits, means, logs], y, answer | named | {"kl": kl}


def _near(rng: Any, means: list[float], logs: list[float]) -> list[float]:
    """Means that move by a part of their standard deviations."""
    step, pairs = rng.choice(STEPS), zip(means, logs, strict=True)
    return [single(m + step * np.exp(0.5 * s) * rng.normal()) for m, s in pairs]


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "Gaussian": gaussian,
    "Laplace": laplace,
    "LogNormal": log_normal,
    "Weibull": weibull,
    "Bernoulli": bernoulli,
    "Categorical": categorical,
    "GaussianMixture": gaussian_mixture,
}
