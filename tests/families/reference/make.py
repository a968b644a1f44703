"""Makes the tables next to this file: `python -m tests.families.reference.make [family ...]`.

Every table is a JSON object of columns: the parameters by name, `targets`, and what is right for
them. Parameters and targets are float32 numbers, written with all their digits; the answers belong
to exactly these. Likelihoods and natural scores are computed with 50 digits (`exact.py`), cdfs by
SciPy's incomplete beta function and, since SciPy's incomplete gamma function is off by 1 % in the
lower tail of shapes above 1e6, by an integral with 25 digits for gamma shapes above 50.
"""

import sys
from collections.abc import Callable, Iterator

import mpmath as mp
import numpy as np
import scipy.special as sp

from tests.families.reference import crps, elementary, exact, files, student_kl

RNG = np.random.default_rng(20)
# Standard scores of the targets: far in both tails, and in the middle.
SCORES = (-5.5, -4.0, -2.0, -0.7, 0.0, 0.6, 2.0, 4.0, 5.5)
LOGS = (-12, -9.5, -6, -3, -1, 0.5, 2, 3, 5, 7, 9, 11, 13, 14.5, 16)

Row = tuple[list[float], float, dict[str, float]]


def single(x: float) -> float:
    """The nearest float32 number."""
    return float(np.float32(x))


def _draws() -> Iterator[tuple[float, float, float]]:
    """Two log-parameters on a jittered grid, and a level for each pair and two scores."""
    for first in LOGS:
        for second in LOGS:
            jitter = RNG.uniform(-0.5, 0.5, 2)
            for score in RNG.choice(SCORES, 2, replace=False):
                yield single(first + jitter[0]), single(second + jitter[1]), sp.ndtr(score)


def _lower_gamma(a: float, x: mp.mpf) -> tuple[float, float]:
    if a < 50:
        return float(sp.gammainc(a, float(x))), float(sp.gammaincc(a, float(x)))
    lower, upper = exact.gamma_tails(mp.mpf(a), x)
    return float(lower), float(upper)


def gamma() -> Iterator[Row]:
    for log_mean, log_k, level in _draws():
        k = np.exp(log_k)
        y = single(np.exp(log_mean) * sp.gammaincinv(k, level) / k)
        if not 1e-37 < y < 1e37:
            continue
        answer = exact.gamma(mp.mpf(log_mean), mp.mpf(log_k), mp.mpf(y))
        cdf = _lower_gamma(float(answer["a"]), answer["x"])[0]
        yield [log_mean, log_k], y, _row(answer, cdf)


def poisson() -> Iterator[Row]:
    for log_rate, _, level in _draws():
        rate = np.exp(log_rate)
        y = single(np.floor(sp.gammaincinv(rate, level)))
        answer = exact.poisson(mp.mpf(log_rate), mp.mpf(y))
        yield [log_rate], y, _row(answer, _lower_gamma(y + 1, answer["rate"])[1])


def zero_inflated_poisson() -> Iterator[Row]:
    for logit, log_rate, level in _draws():
        y = single(np.floor(sp.gammaincinv(np.exp(log_rate), level)))
        answer = exact.zero_inflated(mp.mpf(logit), mp.mpf(log_rate), mp.mpf(y))
        h, below = float(answer["h"]), _lower_gamma(y + 1, answer["rate"])[1]
        yield [logit, log_rate], y, _row(answer, h + (1 - h) * below)


def _lower_beta(a: float, b: float, x: mp.mpf) -> float:
    if x < 0.5:
        return float(sp.betainc(a, b, float(x)))
    return float(sp.betaincc(b, a, float(1 - x)))


def negative_binomial() -> Iterator[Row]:
    for log_mean, log_r, level in _draws():
        m, r = np.exp(log_mean), np.exp(log_r)
        shape = 1 / (1 / m + 1 / r)
        y = single(np.floor(m * sp.gammaincinv(shape, level) / shape))
        answer = exact.negative_binomial(mp.mpf(log_mean), mp.mpf(log_r), mp.mpf(y))
        chance = answer["r"] / (answer["r"] + answer["m"])
        cdf = _lower_beta(float(answer["r"]), y + 1, chance)
        yield [log_mean, log_r], y, _row(answer, cdf)


def beta() -> Iterator[Row]:
    for logit, log_c, level in _draws():
        m, n, c = sp.expit(logit), sp.expit(-logit), np.exp(log_c)
        y = single(sp.betaincinv(m * c, n * c, level))
        if not 1e-37 < y < 1:
            continue
        answer = exact.beta(mp.mpf(logit), mp.mpf(log_c), mp.mpf(y))
        cdf = _lower_beta(float(answer["a"]), float(answer["b"]), mp.mpf(y))
        yield [logit, log_c], y, _row(answer, cdf)


def _students() -> Iterator[tuple[list[float], float, dict]]:
    for log_scale, log_df, level in _draws():
        location = single(RNG.normal())
        log_scale = single(0.5 * log_scale)
        z = float(sp.stdtrit(np.exp(log_df), level)) if log_df > -4 else sp.ndtri(level)
        y = single(location + np.exp(log_scale) * z)
        if abs(y) < 1e37:
            parameters = [location, log_scale, log_df]
            yield parameters, y, exact.student(*map(mp.mpf, parameters), mp.mpf(y))


def _t_cdf(answer: dict) -> float:
    z_sq, df = answer["z"] ** 2, answer["df"]
    tail = 0.5 * _lower_beta(float(df) / 2, 0.5, df / (df + z_sq))
    return tail if answer["z"] < 0 else 1 - tail


def student_t_learned_df() -> Iterator[Row]:
    for parameters, y, answer in _students():
        yield parameters, y, _row(answer, _t_cdf(answer))


def student_t() -> Iterator[Row]:
    """Fixed degrees of freedom up to 1e9, as a third column that holds their number."""
    for df in (0.5, 1.0, 2.0, 4.0, 30.0, 1e3, 1e5, 1e7, 1e9):
        for score in SCORES:
            location, log_scale = single(RNG.normal()), single(RNG.uniform(-8, 8))
            y = single(location + np.exp(log_scale) * sp.stdtrit(df, sp.ndtr(score)))
            answer = exact.student(*map(mp.mpf, (location, log_scale)), mp.log(df), mp.mpf(y))
            yield [location, log_scale, df], y, _row(answer | answer["fixed"], _t_cdf(answer))


def von_mises() -> Iterator[Row]:
    for log_k in LOGS:
        for score in SCORES:
            location, log_k = single(RNG.uniform(-3, 3)), single(log_k)
            spread = min(np.exp(-0.5 * log_k), 0.5)
            y = single(location + score * spread)
            answer = exact.von_mises(mp.mpf(location), mp.mpf(log_k), mp.mpf(y))
            yield [location, log_k], y, _row(answer, float(answer["cdf"]))


def _row(answer: dict, cdf: float) -> dict[str, float]:
    scores = {f"score_{i}": float(x) for i, x in enumerate(answer["score"])}
    spreads = {f"spread_{i}": float(x) for i, x in enumerate(answer["spread"])}
    return {"nll": float(answer["nll"]), "cdf": cdf, **scores, **spreads}


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "Gamma": gamma,
    "Poisson": poisson,
    "ZeroInflatedPoisson": zero_inflated_poisson,
    "NegativeBinomial": negative_binomial,
    "Beta": beta,
    "StudentTLearnedDf": student_t_learned_df,
    "StudentT": student_t,
    "VonMises": von_mises,
    **elementary.TABLES,
}


def _write(name: str) -> None:
    columns: files.Table = {}
    for parameters, y, answers in TABLES[name]():
        named = {f"parameter_{i}": x for i, x in enumerate(parameters)}
        for key, value in (named | {"targets": y} | answers).items():
            columns.setdefault(key, []).append(value)
    if name in crps.CRPS:
        columns |= crps.columns(name, columns)
    if name in student_kl.NAMES:
        columns |= student_kl.columns(name, columns)
    files.write(name, columns)


if __name__ == "__main__":
    for table in sys.argv[1:] or TABLES:
        _write(table)
