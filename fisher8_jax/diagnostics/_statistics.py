"""The few tests behind the doctor's statements, in double precision on the host.

A statement needs two things: it must be *significant*, that is unlikely to be sampling noise, and
*material*, that is worth a stated number of nats of NLL per target. The first alone would complain
about every model once there are enough targets; the second alone would complain about small ones.
"""

import dataclasses
import math
from statistics import NormalDist

import numpy as np


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


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean of independent values and its standard error; the error of one value is inf."""
    if values.size < 2:
        return float(values.mean()), math.inf
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))


def mean_square_and_error(z: np.ndarray) -> tuple[float, float]:
    """Mean of z^2 and its relative standard error, which is at least that of normal residuals.

    When residuals are small by chance, so is the error estimated from them; `sqrt(2 / n)`, the
    relative error for normal residuals, keeps this from raising alarms in small samples.
    """
    mean, error = mean_and_error(np.square(z))
    return mean, max(error / mean if mean > 0 else 0.0, math.sqrt(2 / z.size))


def normal_score(ratio: float, relative_error: float) -> float:
    """How many standard errors a mean of squares lies from its expected value.

    By the cube root of Wilson and Hilferty (1931), which takes away the skewness of a mean of
    squares: for `n` normal residuals, whose relative error is `sqrt(2 / n)`, it is theirs exactly.
    """
    return (ratio ** (1 / 3) - 1 + relative_error**2 / 9) / (relative_error / 3)


def scaling_gain(mean_z_squared: float) -> float:
    """Nats gained per target by the best common factor on the variance: `(m - 1 - ln m) / 2`."""
    if mean_z_squared == 0:
        return math.inf
    return 0.5 * (mean_z_squared - 1 - math.log(mean_z_squared))


def error_gain(mse: float, reference_mse: float) -> float:
    """Nats lost per target by a larger squared error: `ln(mse / reference_mse) / 2`."""
    if reference_mse == 0:
        return 0.0 if mse == 0 else math.inf
    return -math.inf if mse == 0 else 0.5 * math.log(mse / reference_mse)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability that a chi-square variable exceeds `statistic`, to about a fifth of it."""
    score = normal_score(statistic / degrees, math.sqrt(2 / degrees))
    return 1 - NormalDist().cdf(score)


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
    room = 4 * np.arange(1, parts)
    return np.split(series, np.clip(ends, room, series.size - room[::-1]))


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
