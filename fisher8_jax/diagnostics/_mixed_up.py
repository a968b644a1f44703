"""Rules of the doctor about predictions that are right once something is read differently."""

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._spread_rules import variance_groups
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    same_in_all_groups,
    scaling_gain,
    spread_probability,
)
from fisher8_jax.families import Gaussian, Predictive

_FEWEST_POINTS = 30

# Nats, and the share of the variance that the mean explains: what was learnt from noise alone can
# look mixed up, but only by a little.
_CLEAR_GAIN, _EXPLAINED = 0.1, 0.1


def judge_mixed_up_fields(
    points: Predictions, dist: Predictive, limits: Thresholds
) -> list[Finding]:
    """Was a standard deviation taken for a variance, or one output for the other?

    Each mistake says what the right mean and log-variance are. It is named if the predictions are
    wrong as they are and calibrated without it, and it explains more than a common factor on the
    variance would.
    """
    if not isinstance(dist, Gaussian) or points.z.size < _FEWEST_POINTS:
        return []
    if _is_calibrated(points.z, points, limits):
        return []
    mean, log_variance = points.mean, points.log_variance
    # A common factor on the variance would reach this much.
    reached = _nll(points.z, log_variance) - scaling_gain(float(np.mean(np.square(points.z))))
    best: tuple[float, str, str] | None = None
    for what, advice, right_mean, right in _mistakes(mean, log_variance):
        if not np.ptp(right_mean) > 0:
            continue
        with np.errstate(over="ignore"):
            z = (points.targets - right_mean) * np.exp(-0.5 * right)
        if not (np.isfinite(z).all() and _is_calibrated(z, points, limits)):
            continue
        gain = reached - _nll(z, right)
        explained = np.corrcoef(right_mean, points.targets)[0, 1] ** 2
        if gain > _CLEAR_GAIN and explained > _EXPLAINED and (best is None or gain > best[0]):
            best = gain, what, advice
    if best is None:
        return []
    gain, what, advice = best
    sentence = f"{what}: read like that the predictions are calibrated, as they are they are not."
    return [Finding("fields_mixed_up", "error", sentence, {"gain_in_nats": gain}, advice)]


def _mistakes(
    mean: np.ndarray, log_variance: np.ndarray
) -> list[tuple[str, str, np.ndarray, np.ndarray]]:
    """What was done, what to do instead, and the mean and log-variance that were meant."""
    by_std = "Build the distribution by `Gaussian.from_std(mean, std)`."
    by_variance = "Build the distribution by `Gaussian.from_variance(mean, variance)`."
    by_name = "Pass the fields by name: `Gaussian(mean=..., log_variance=...)`."
    found = [
        (
            "The predicted variances are standard deviations, or the log-variances logarithms of "
            "standard deviations",
            by_std,
            mean,
            2 * log_variance,
        ),
        (
            "The predicted standard deviations are variances",
            by_variance,
            mean,
            0.5 * log_variance,
        ),
        ("Mean and log-variance have changed places", by_name, log_variance, mean),
    ]
    if (log_variance > 0).all():
        logarithm = np.log(log_variance)
        found += [
            ("The predicted log-variances are variances", by_variance, mean, logarithm),
            ("The predicted log-variances are standard deviations", by_std, mean, 2 * logarithm),
        ]
    return found


def _is_calibrated(z: np.ndarray, points: Predictions, limits: Thresholds) -> bool:
    """Whether squared residuals average 1, in all groups of predicted variances."""
    groups = variance_groups(points)
    if len(groups) > 1 and same_in_all_groups(np.abs(z), groups) <= limits.significance:
        return False
    return spread_probability(z) > limits.significance


def _nll(z: np.ndarray, log_variance: np.ndarray) -> float:
    return 0.5 * float(np.mean(np.square(z) + log_variance))
