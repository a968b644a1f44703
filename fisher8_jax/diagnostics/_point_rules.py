"""Rules of the doctor about predictions: what cannot be judged, does not vary or is stuck."""

import math

import numpy as np

from fisher8_jax.diagnostics._findings import Finding, TrainingRecord
from fisher8_jax.diagnostics._scores import Column, Predictions
from fisher8_jax.diagnostics._statistics import Thresholds
from fisher8_jax.diagnostics._training_rules import scale_finding
from fisher8_jax.families import Predictive

# Faults for which targets of another scale are a likely cause, though no record speaks of them.
_SCALE_EXPLAINS = {"non_finite_predictions", "mean_uninformative", "mean_off", "collapsed"}


def judge_data(column: Column) -> list[Finding]:
    """Is there anything to judge, and is all of it finite?"""
    found = []
    if column.used == 0:
        sentence = "There is nothing to judge: no row is left, or `where` leaves out all of them."
        advice = "Pass held-out rows, and a `where` that is True for those with a target."
        found.append(Finding("no_data", "error", sentence, {"rows": 0.0}, advice))
    if column.bad_targets:
        sentence = f"{column.bad_targets} of {column.used} targets are not finite numbers."
        advice = (
            "Mark missing targets by `where=jnp.isfinite(targets)`, here and in training; the "
            "other findings leave them out."
        )
        figures = {"not_finite": float(column.bad_targets), "targets": float(column.used)}
        found.append(Finding("non_finite_targets", "error", sentence, figures, advice))
    if column.bad_predictions:
        sentence = f"{column.bad_predictions} of {column.used} predictions are not finite."
        advice = (
            "Look for nan in the inputs and targets; if there are none, lower the learning rate, "
            "scale the targets, or use `fisher8_nll`, which does not overflow at small variances."
        )
        figures = {"not_finite": float(column.bad_predictions), "predictions": float(column.used)}
        found.append(Finding("non_finite_predictions", "error", sentence, figures, advice))
    return found


def judge_scale_of_given_targets(
    columns: list[Column], dist: Predictive, codes: set[str]
) -> list[Finding]:
    """Without a record: could the scale of these targets have caused what was found?"""
    if not dist.is_location_scale or not codes & _SCALE_EXPLAINS:
        return []
    targets = np.concatenate([c.targets for c in columns] or [np.zeros(0)])
    targets = targets[np.isfinite(targets)]
    if targets.size < 2 or targets.std() == 0:
        return []
    mean, std = float(targets.mean()), float(targets.std())
    predicted = np.concatenate([c.points.mean for c in columns])
    predicted = predicted[np.isfinite(predicted)]
    # Such predictions were learnt at the targets' scale.
    if predicted.size and abs(predicted.mean() - mean) < std and predicted.std() > 0.1 * std:
        return []
    return scale_finding(mean, std, "these targets, if they are trained on as they are, are")


# A share of equal targets, and how much commoner they are than any other value.
_FEWEST_EQUAL, _SHARE_EQUAL, _COMMONER = 5, 0.01, 5


def judge_placeholders(points: Predictions, dist: Predictive) -> tuple[list[Finding], Predictions]:
    """Is one value much commoner than all others, and far from what is predicted there?

    Returns:
        The finding, and the points without these targets.
    """
    values, counts = np.unique(points.targets, return_counts=True)
    if dist.is_discrete or values.size < 2:
        return [], points
    value, most = float(values[counts.argmax()]), int(counts.max())
    second = int(np.partition(counts, -2)[-2])
    if most < max(_FEWEST_EQUAL, _SHARE_EQUAL * points.z.size, _COMMONER * second):
        return [], points
    equal = points.targets == value
    if np.median(np.abs(points.score[equal])) < 3:
        return [], points
    sentence = (
        f"{most} of {points.z.size} targets are exactly {value:.6g}, and most of these lie more "
        "than three standard deviations from what is predicted for them."
    )
    advice = (
        "If the value stands for a missing target, mark it by `where=targets != "
        f"{value:.6g}`, here and in training. If it is a limit of the measurement, use "
        "`families.censored_nll`. The other findings leave these targets out."
    )
    figures = {"value": value, "targets": float(most)}
    return [Finding("placeholder_targets", "error", sentence, figures, advice)], points.at(~equal)


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
