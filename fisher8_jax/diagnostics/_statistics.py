"""The few tests behind the doctor's statements, in double precision on the host.

A statement needs two things: it must be *significant*, that is unlikely to be sampling noise, and
*material*, that is worth a stated number of nats of NLL per target. The first alone would complain
about every model once there are enough targets; the second alone would complain about small ones.

The tests of predictions take normal scores, which are independent standard normal draws if the
model is right; their levels are exact or known asymptotically, whatever the family.
"""

import dataclasses
import math
from statistics import NormalDist
from types import ModuleType

import numpy as np

GROUP_SIZE = 40


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """When a deviation counts.

    Args:
        significance: probability of a false alarm in one two-sided test.
        material: nats of NLL per target below which a fault is not worth a word.
    """

    significance: float
    material: float

    @property
    def z(self) -> float:
        """Standard errors that a normal variable exceeds with probability `significance`."""
        return NormalDist().inv_cdf(1 - self.significance / 2)

    def is_significant(self, deviation: float, error: float) -> bool:
        """Whether a deviation from its expectation is beyond `z` standard errors."""
        return abs(deviation) > self.z * error


def spread_probability(scores: np.ndarray) -> float:
    """Of a mean square as far from 1: `n` of them sum to a chi-square variable, two-sided."""
    total, chi2 = float(np.sum(np.square(scores))), _stats().chi2
    return 2 * min(float(chi2.cdf(total, scores.size)), float(chi2.sf(total, scores.size)))


def kurtosis_score(scores: np.ndarray) -> float:
    """How far the sample kurtosis lies above that of normal draws, as a standard normal variable.

    By the transformation of Anscombe and Glynn, Biometrika 70, 1983, for 20 points and more.
    """
    return float(_stats().kurtosistest(scores).statistic)


def has_heavy_tails(scores: np.ndarray, limits: Thresholds) -> bool:
    """Whether normal scores have significantly more far values than they should, by kurtosis."""
    if not np.ptp(scores):
        return False
    found = _stats().kurtosistest(scores)
    return bool(found.statistic > 0 and found.pvalue <= limits.significance)


def rank_correlation_score(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation in standard errors; normal for independent columns."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(_stats().spearmanr(first, second).statistic) * math.sqrt(first.size - 1)


def same_in_all_groups(values: np.ndarray, groups: list[np.ndarray]) -> float:
    """The probability of rank sums as unequal by chance, by the test of Kruskal and Wallis (1952).

    It holds for values of any distribution; `groups` are the positions of each.
    """
    if np.ptp(values) == 0:
        return 1.0
    return float(_stats().kruskal(*(values[group] for group in groups)).pvalue)


def rising_groups(column: np.ndarray, most: int) -> list[np.ndarray]:
    """Positions in groups of rising values, of 40 points or more; none if there are too few."""
    number = min(most, column.size // GROUP_SIZE)
    if number < 2 or not np.ptp(column) > 0:
        return []
    return np.array_split(np.argsort(column, kind="stable"), number)


def squares_by_group(scores: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """Mean squares relative to that of all, and the nats that a factor for each group gains.

    Less what sampling noise alone would gain: a group's mean square has the variance `2 / size`.
    """
    square = np.square(scores)
    ratios = np.array([square[group].mean() for group in groups]) / square.mean()
    gain = float(np.mean([scaling_gain(ratio) for ratio in ratios]))
    return ratios, gain - 0.5 * (len(groups) - 1) / scores.size


def without_effect(scores: np.ndarray, design: np.ndarray) -> tuple[float, np.ndarray]:
    """The F test that no column of `design` explains anything of normal scores.

    Returns:
        Its probability, and the scores that are left. It does not depend on the scores' scale.
    """
    basis = _orthonormal(design)
    left = scores - basis @ (basis.T @ scores)
    total, rest = float(np.sum(np.square(scores))), float(np.sum(np.square(left)))
    degrees, free = basis.shape[1], scores.size - basis.shape[1]
    if degrees == 0 or total == 0 or free < 1:
        return 1.0, scores
    if rest <= 1e-20 * total:  # a perfect line leaves no noise to compare with
        return 0.0, left
    return float(_stats().f.sf((total / rest - 1) * free / degrees, degrees, free)), left


def _orthonormal(design: np.ndarray) -> np.ndarray:
    """Columns that span those of `design`, fewer if some are combinations of others."""
    lengths = np.linalg.norm(design, axis=0)
    left, values, _ = np.linalg.svd(design / np.where(lengths > 0, lengths, 1), full_matrices=False)
    return left[:, values > 1e-6 * max(1.0, float(values.max(initial=0.0)))]


def scaling_gain(mean_square: float) -> float:
    """Nats gained per target by the best common factor on the variance: `(m - 1 - ln m) / 2`."""
    if mean_square == 0:
        return math.inf
    return 0.5 * (mean_square - 1 - math.log(mean_square))


def error_gain(mse: float, reference_mse: float) -> float:
    """Nats lost per target by a larger squared error: `ln(mse / reference_mse) / 2`."""
    if reference_mse == 0:
        return 0.0 if mse == 0 else math.inf
    return -math.inf if mse == 0 else 0.5 * math.log(mse / reference_mse)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability that a chi-square variable exceeds `statistic`."""
    return float(_stats().chi2.sf(statistic, degrees))


def _stats() -> ModuleType:
    """SciPy comes with JAX; importing its statistics takes half a second, so it waits."""
    import scipy.stats

    return scipy.stats


def split_by_distance(
    series: np.ndarray, parts: int, learning_rate: np.ndarray | None
) -> list[np.ndarray]:
    """Cuts a series of steps into consecutive parts of equal summed learning rate.

    Without a learning rate per step, the parts have equal numbers of steps. Every part keeps at
    least four steps, so that its mean has an error.
    """
    if learning_rate is None or learning_rate.size != series.size:
        return np.array_split(series, parts)
    distance = np.cumsum(learning_rate)
    ends = np.searchsorted(distance, distance[-1] * np.arange(1, parts) / parts)
    margin = 4 * np.arange(1, parts)
    return np.split(series, np.clip(ends, margin, series.size - margin[::-1]))


def part_means(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means of consecutive parts and their standard errors by the method of batch means.

    Steps of a training are correlated, so the error comes from the means of up to ten runs of
    consecutive steps within a part, not from single steps.
    """
    errors = []
    for part in parts:
        runs = np.array([run.mean() for run in np.array_split(part, min(10, part.size))])
        errors.append(runs.std(ddof=1) / math.sqrt(runs.size))
    return np.array([part.mean() for part in parts]), np.array(errors)
