"""Rules of the doctor about the mean of one target's predictions."""

import math

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    error_gain,
    rank_correlation_score,
    spread_probability,
    without_effect,
)
from fisher8_jax.families import Predictive

# Below this many points nothing is said about the mean.
_FEWEST_POINTS = 30

# One-sided 5 %: a mean that follows the targets at all is not called useless.
_FOLLOWS = 1.645

# Nats that a line gains if it takes away nine tenths of the squared error: another shift or scale.
_OTHER_UNITS = 0.5 * math.log(10)

# Of the targets' variance: a mean that explains so much was learnt.
_FOLLOWS_WELL = 0.1

# Of the spread of the targets: such a mean could explain 0.04 % of their variance.
_HARDLY_VARIES = 0.02


def judge_mean_against_reference(
    points: Predictions, dist: Predictive, limits: Thresholds
) -> list[Finding]:
    """Is the mean worse than that of a fit with unit variance?

    If the model is right, its scores do not know on which side the reference lies.
    """
    points = points.with_moments()
    if points.unit_variance_mean is None or points.z.size < _FEWEST_POINTS:
        return []
    direction = points.unit_variance_mean - points.mean
    weights = direction * _relative_precision(points)
    probability, _ = without_effect(points.score, weights[:, None])
    mse = float(points.squared_residuals.mean())
    reference_mse = float(np.mean(np.square(points.targets - points.unit_variance_mean)))
    loss = error_gain(mse, reference_mse)
    if float(weights @ points.score) <= 0 or probability > limits.significance:
        return []
    if loss <= limits.material:
        return []
    sentence = (
        "The mean is worse than that of a fit with unit variance: root mean squared error "
        f"{math.sqrt(mse):.4g} against {math.sqrt(reference_mse):.4g}. The variance is explaining "
        "away errors that the mean could have learnt."
    )
    figures = {
        "rmse": math.sqrt(mse),
        "unit_variance_rmse": math.sqrt(reference_mse),
        "probability": probability,
        "loss_in_nats": loss,
    }
    advice = (
        "Train with `fisher8`, which frees the mean from the predicted variance, or warm up with "
        "unit variance first."
    )
    return [Finding("mean_worse_than_unit_variance", "error", sentence, figures, advice)]


def judge_mean_explains(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Does the mean explain anything? It must follow the targets or beat one constant.

    A true model of noisy targets may explain little, too. So the mean is blamed only if it claims
    more than there is, by the test of its units, or if it hardly varies at all.
    """
    points = points.with_moments()
    if points.z.size < _FEWEST_POINTS or not dist.is_ordered:
        return []
    constant_mse = float(points.targets.var())
    mse = float(points.squared_residuals.mean())
    if constant_mse == 0 or error_gain(constant_mse, mse) > limits.material:
        return []
    follows = rank_correlation_score(points.mean, points.targets)
    hardly_varies = points.mean.std() < _HARDLY_VARIES * math.sqrt(constant_mse)
    if hardly_varies and follows > _FOLLOWS:
        return []
    claims_too_much = _test_of_line(points)[0] <= limits.significance and follows < limits.z
    if not hardly_varies and not claims_too_much:
        return []
    explained = 1 - mse / constant_mse
    sentence = (
        f"The mean explains {100 * explained:.1f} % of the variance of the targets and does not "
        "follow them: one constant for all points would do as well."
    )
    figures = {"rmse": math.sqrt(mse), "std_of_targets": math.sqrt(constant_mse)}
    advice = (
        "Check that inputs and targets belong together, row by row, and that both are scaled; then "
        "train for longer. If the targets are pure noise, this is the right answer."
    )
    return [Finding("mean_uninformative", "error", sentence, figures, advice)]


def judge_mean_units(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Is the mean in the units of the targets? `targets = a + b * mean` must give a = 0, b = 1."""
    points = points.with_moments()
    if points.mean.size < _FEWEST_POINTS or not dist.is_ordered:
        return []
    probability, left = _test_of_line(points)
    gain = error_gain(float(np.mean(np.square(points.score))), float(np.mean(np.square(left))))
    if probability > limits.significance or gain <= limits.material:
        return []
    intercept, slope = _line(points)
    line = f"the targets follow {intercept:.4g} + {slope:.4g} times the predicted mean"
    figures = {
        "intercept": intercept,
        "slope": slope,
        "probability": probability,
        "gain_in_nats": gain,
    }
    if (points.targets > 0).all() and _is_calibrated(np.log(points.targets), points, limits):
        sentence = "The predictions are right for the logarithms of these targets."
        advice = (
            "Compare them with the logarithms, or predict `families.LogNormal(location=mean, "
            "log_variance=log_variance)`, the same model for the targets themselves."
        )
        return [Finding("mean_off", "error", sentence, figures, advice)]
    if gain > _OTHER_UNITS and _explained(points) > _FOLLOWS_WELL and _scales_alike(points, slope):
        sentence = f"The predictions are in other units than the targets: {line}."
        advice = (
            "Bring them back to the units of the targets by the shift and scale of the training, "
            f"`dist.unscale(shift, scale)`; about {intercept:.4g} and {slope:.4g} are missing. "
            "Then ask the doctor again: in these units nothing can be said about the spread."
        )
        return [Finding("mean_off", "error", sentence, figures, advice)]
    sentence = f"The mean is off by a straight line: {line}, where 0 and 1 are right."
    advice = (
        "Check that predictions were brought back to the units of the targets (`dist.unscale`) and "
        "that the data were drawn alike; otherwise train the mean for longer."
    )
    return [Finding("mean_off", "warning", sentence, figures, advice)]


def _is_calibrated(targets: np.ndarray, points: Predictions, limits: Thresholds) -> bool:
    """Whether the predictions have the right mean and spread for other targets."""
    z = _relative_precision(points) * (targets - points.mean)
    z *= math.exp(-0.5 * float(points.log_variance.min()))
    is_in_place = without_effect(z, _design(points))[0] > limits.significance
    return is_in_place and spread_probability(z) > limits.significance


def _scales_alike(points: Predictions, slope: float) -> bool:
    """Whether the predicted spread is about right once both were scaled by the slope.

    If it is not, the network is still on its way to targets that were never scaled.
    """
    left = _test_of_line(points)[1]
    return 0.1 < float(np.mean(np.square(left))) / slope**2 < 10


def _explained(points: Predictions) -> float:
    """The share of the targets' variance that a line through the mean explains."""
    if not np.ptp(points.mean) or not np.ptp(points.targets):
        return 0.0
    return float(np.corrcoef(points.mean, points.targets)[0, 1] ** 2)


def _test_of_line(points: Predictions) -> tuple[float, np.ndarray]:
    """An F test of the scores on `1 / std` and `mean / std`, and the scores that are left.

    Standardised residuals of a mean that is off by a line are made of these two.
    """
    return without_effect(points.score, _design(points))


def _design(points: Predictions) -> np.ndarray:
    weight = _relative_precision(points)
    return np.stack([weight, weight * (points.mean - points.mean.mean())], axis=1)


def _line(points: Predictions) -> tuple[float, float]:
    """Intercept and slope of the targets on the mean, weighted by the predicted precision."""
    centre = points.mean.mean()
    wanted = _relative_precision(points) * (points.targets - centre)
    line = np.linalg.lstsq(_design(points), wanted, rcond=1e-6)[0]
    slope = float(line[1]) if np.ptp(points.mean) > 0 else 1.0
    return float(line[0]) + float(centre) * (1 - slope), slope


def _relative_precision(points: Predictions) -> np.ndarray:
    """`1 / std` over the largest one, so that nothing overflows."""
    return np.exp(-0.5 * (points.log_variance - points.log_variance.min()))


MEAN_RULES = (judge_mean_against_reference, judge_mean_explains, judge_mean_units)
