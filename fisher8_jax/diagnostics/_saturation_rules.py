"""The rule of the doctor for variances that are held at a bound."""

import math

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._record import TrainingRecord
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import Thresholds

_MARGIN = 0.01  # one per cent of the variance


def judge_saturation(
    points: Predictions, record: TrainingRecord, limits: Thresholds
) -> list[Finding]:
    """Are log-variances held at a bound, stated in the record or betrayed by ties?

    A share `p` of held predictions is reported when it is more than `material`. Without stated
    bounds, equal values at an end of the predictions are taken for a bound: a network's outputs are
    continuous, so that ties there have probability 0. When all are equal, they are taken to be held
    if they have not moved in the second half of the training: a variance that is learnt does.
    """
    log_variance, mean = points.log_variance, points.mean
    if log_variance.size < 2:
        return []
    stuck = _judge_stuck(log_variance, record)
    if stuck:
        return stuck
    lower, upper = record.log_variance_bounds
    low = _share_at(log_variance, lower, -1, mean)
    high = _share_at(log_variance, upper, 1, mean)
    low_steps = _share_at(record.series("smallest_log_variance"), lower, -1)
    high_steps = _share_at(record.series("largest_log_variance"), upper, 1)
    found = []
    for side, share, steps, bound in (
        ("lower", low, low_steps, lower),
        ("upper", high, high_steps, upper),
    ):
        if share <= limits.material:
            continue
        value = (log_variance.min() if side == "lower" else log_variance.max()).item()
        during = f", and it was reached in {100 * steps:.0f} % of the steps" if steps else ""
        sentence = (
            f"The variance is saturated: {100 * share:.0f} % of the log-variances are held at "
            f"{value:.4g}, the {side} end of what the head gives{during}."
        )
        figures = {"share": share, "log_variance": value, "share_of_steps": steps}
        if bound is not None:
            figures["bound"] = bound
        advice = f"Move or remove the {side} bound of the variance; `fisher8` needs none."
        found.append(Finding("variance_saturated", "warning", sentence, figures, advice))
    return found


def _judge_stuck(log_variance: np.ndarray, record: TrainingRecord) -> list[Finding]:
    """One value for all points that training could not move."""
    smallest = record.series("smallest_log_variance")
    largest = record.series("largest_log_variance")
    if smallest is None or largest is None or smallest.size < 4 or np.ptp(log_variance) > 0:
        return []
    late = np.concatenate([smallest[smallest.size // 2 :], largest[largest.size // 2 :]])
    if np.ptp(late) > 0:
        return []
    value = float(log_variance[0])
    sentence = (
        f"The variance is saturated: all log-variances are held at {value:.4g} and have not moved "
        "in the second half of the training."
    )
    figures = {"share": 1.0, "log_variance": value}
    advice = (
        "Remove the bounds of the variance, or start inside them: a clipped output has no "
        "gradient. `fisher8` needs no bounds."
    )
    return [Finding("variance_saturated", "warning", sentence, figures, advice)]


def _share_at(
    log_variance: np.ndarray | None,
    bound: float | None,
    sign: int,
    mean: np.ndarray | None = None,
) -> float:
    """The share at `bound`, or tied at the extreme end if no bound is stated.

    Where the means are tied as well, all of the prediction is constant and no bound is betrayed.
    """
    if log_variance is None or log_variance.size < 2:
        return 0.0
    towards = sign * log_variance
    if bound is not None:
        return float(np.mean(towards >= sign * bound - _MARGIN))
    # Values that hardly differ are a constant variance, not a bound.
    resolution = 1e3 * np.finfo(np.float32).eps * max(1.0, float(np.abs(log_variance).max()))
    if np.ptp(log_variance) <= max(resolution, _MARGIN):
        return 0.0
    is_tied = towards == towards.max()
    if mean is not None and np.ptp(mean[is_tied]) == 0:
        return 0.0
    tied = int(np.sum(is_tied))
    return tied / log_variance.size if tied > max(2, math.log2(log_variance.size)) else 0.0
