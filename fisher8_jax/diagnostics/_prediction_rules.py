"""Rules of the doctor that look at one target's predictions."""

import dataclasses
import math
from typing import Any

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    chi_square_tail,
    error_gain,
    mean_and_error,
    mean_square_and_error,
    normal_score,
    scaling_gain,
)

# Points per group and number of groups when calibration is compared across predicted variances.
_GROUP_SIZE, _MOST_GROUPS = 40, 5

_Z_OF_99 = 2.5758  # a normal variable lies beyond it with probability 1 %

# Below this many points, statements about the mean would need more than a normal approximation.
_FEWEST_POINTS = 30


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Finite predictions of one target, in double precision, one entry per point.

    Args:
        targets: observed values.
        mean: predicted means.
        log_variance: logarithms of the predicted variances.
        z: standardised residuals.
        pit: predicted cdf at the targets.
        unit_variance_mean: means of a reference fit with unit variance, or None.
    """

    targets: np.ndarray
    mean: np.ndarray
    log_variance: np.ndarray
    z: np.ndarray
    pit: np.ndarray
    unit_variance_mean: np.ndarray | None

    @property
    def squared_residuals(self) -> np.ndarray:
        return np.square(self.targets - self.mean)

    def with_moments(self) -> "Predictions":
        """Without the predictions whose tails are too heavy for a mean or a variance."""
        rows = np.isfinite(self.mean) & np.isfinite(self.log_variance)
        columns: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            column = getattr(self, field.name)
            columns[field.name] = None if column is None else column[rows]
        return Predictions(**columns)


def judge_spread(points: Predictions, limits: Thresholds) -> list[Finding]:
    """Is the predicted variance right on average? The mean of z^2 must be 1."""
    mean, relative_error = mean_square_and_error(points.z)
    error = mean * relative_error
    gain = scaling_gain(mean)
    outside = float(np.mean(np.abs(points.pit - 0.5) > 0.45))
    # Heavy tails hide in the error of the mean square; the count of far targets is robust. Both
    # measures of far must agree, because the PIT of counts has jumps.
    is_far = (np.abs(points.pit - 0.5) > 0.495) & (np.abs(points.z) > _Z_OF_99)
    far = float(is_far.mean())
    far_error = math.sqrt(0.01 * 0.99 / points.z.size)
    too_many_far = far - 0.01 > limits.z * far_error and far * points.z.size > 5
    significant = abs(normal_score(mean, relative_error)) > limits.z or (mean > 1 and too_many_far)
    if not (significant and gain > limits.material):
        return []
    figures = {
        "mean_z_squared": mean,
        "standard_error": error,
        "outside_90": outside,
        "gain_in_nats": gain,
    }
    said = f"squared standardised residuals average {mean:.3g} ± {error:.2g} where 1 is right"
    cover = f"{100 * outside:.1f} % of the targets lie outside the 90 % intervals"
    factor = f"{math.sqrt(mean):.3g}"
    if mean > 1:
        sentence = f"The predicted spread is too small: {said}, and {cover}."
        advice = (
            f"Multiply the predicted standard deviations by {factor} (fit the factor on held-out "
            "data); against the cause, stop earlier, regularise, or train on more data."
        )
        return [Finding("overconfident", "error", sentence, figures, advice)]
    sentence = f"The predicted spread is too large: {said}, and {cover}."
    advice = (
        f"Multiply the predicted standard deviations by {factor} (fit the factor on held-out "
        "data); against the cause, train the scale for longer, lower any floor of the variance, or "
        "free the mean so that the variance need not cover for it."
    )
    return [Finding("variance_inflated", "warning", sentence, figures, advice)]


def judge_spread_where_it_varies(points: Predictions, limits: Thresholds) -> list[Finding]:
    """Does the variance stand where the errors are? z^2 must not depend on the predicted one."""
    points = points.with_moments()
    groups = min(_MOST_GROUPS, points.z.size // _GROUP_SIZE)
    if groups < 2 or np.ptp(points.log_variance) < 1e-3:
        return []
    order = np.argsort(points.log_variance, kind="stable")
    parts = [np.square(points.z[part]) for part in np.array_split(order, groups)]
    overall = float(np.mean(np.square(points.z)))
    if overall == 0:
        return []
    ratios = np.array([part.mean() for part in parts]) / overall
    errors = np.array([part.std(ddof=1) / math.sqrt(part.size) for part in parts]) / overall
    errors = np.maximum(errors, np.maximum(ratios, 1) * math.sqrt(2 * groups / points.z.size))
    statistic = float(np.sum(np.square((ratios - 1) / errors)))
    gain = float(np.mean([scaling_gain(ratio) for ratio in ratios]))
    if chi_square_tail(statistic, groups - 1) > limits.significance or gain <= limits.material:
        return []
    where = "smallest" if ratios[0] > ratios[-1] else "largest"
    sentence = (
        "The predicted variance is large and small in the wrong places: from the smallest to the "
        "largest predicted variances, squared standardised residuals relative to their mean are "
        f"{', '.join(f'{ratio:.2g}' for ratio in ratios)}, where 1 is right everywhere."
    )
    figures = {
        "smallest_group": float(ratios[0]),
        "largest_group": float(ratios[-1]),
        "chi_square": statistic,
        "gain_in_nats": gain,
    }
    advice = (
        f"Predictions with the {where} variances are the least to be trusted. Give the scale more "
        "training or capacity, or less of both if it fits noise; no common factor cures this."
    )
    return [Finding("variance_misplaced", "warning", sentence, figures, advice)]


def judge_mean_against_reference(points: Predictions, limits: Thresholds) -> list[Finding]:
    """Is the mean worse than that of a fit with unit variance? A paired test of squared errors."""
    points = points.with_moments()
    if points.unit_variance_mean is None or points.z.size < _FEWEST_POINTS:
        return []
    reference = np.square(points.targets - points.unit_variance_mean)
    difference, error = mean_and_error(points.squared_residuals - reference)
    mse, reference_mse = float(points.squared_residuals.mean()), float(reference.mean())
    loss = error_gain(mse, reference_mse)
    worse = difference > 0 and limits.is_significant(difference, error)
    if not (worse and loss > limits.material):
        return []
    sentence = (
        "The mean is worse than that of a fit with unit variance: root mean squared error "
        f"{math.sqrt(mse):.4g} against {math.sqrt(reference_mse):.4g}. The variance is explaining "
        "away errors that the mean could have learnt."
    )
    figures = {
        "rmse": math.sqrt(mse),
        "unit_variance_rmse": math.sqrt(reference_mse),
        "paired_z": difference / error if error else math.inf,
        "loss_in_nats": loss,
    }
    advice = (
        "Train with `fisher8`, which frees the mean from the predicted variance, or warm up with "
        "unit variance first."
    )
    return [Finding("mean_worse_than_unit_variance", "error", sentence, figures, advice)]


def judge_mean_explains(points: Predictions, limits: Thresholds) -> list[Finding]:
    """Does the mean explain anything? Its squared error must be below that of a constant."""
    points = points.with_moments()
    if points.z.size < _FEWEST_POINTS:
        return []
    constant = np.square(points.targets - points.targets.mean())
    difference, error = mean_and_error(constant - points.squared_residuals)
    mse, constant_mse = float(points.squared_residuals.mean()), float(constant.mean())
    better = difference > 0 and limits.is_significant(difference, error)
    if better or constant_mse == 0 or error_gain(constant_mse, mse) > limits.material:
        return []
    explained = 1 - mse / constant_mse
    sentence = (
        f"The mean explains {100 * explained:.1f} % of the variance of the targets: one constant "
        "for all points would do as well."
    )
    figures = {"rmse": math.sqrt(mse), "std_of_targets": math.sqrt(constant_mse)}
    advice = (
        "Check that inputs and targets belong together and are scaled, then train longer or with "
        "a larger learning rate. If the targets are pure noise, this is the right answer."
    )
    return [Finding("mean_uninformative", "error", sentence, figures, advice)]


def judge_mean_units(points: Predictions, limits: Thresholds) -> list[Finding]:
    """Is the mean in the units of the targets? `targets = a + b * mean` must give a = 0, b = 1."""
    points = points.with_moments()
    size = points.mean.size
    if size < _FEWEST_POINTS:
        return []
    spread = points.mean.std()
    if spread <= 1e-6 * max(points.targets.std(), abs(points.mean.mean())):
        return []
    design = np.stack([np.ones(size), (points.mean - points.mean.mean()) / spread], axis=1)
    residuals = points.targets - points.mean
    shift, tilt = np.linalg.lstsq(design, residuals, rcond=None)[0]
    left = residuals - design @ np.array([shift, tilt])
    # The sandwich covariance HC3, because the noise may differ from point to point.
    bread = np.linalg.inv(design.T @ design)
    leverage = np.sum((design @ bread) * design, axis=1)
    meat = (design.T * np.square(left / (1 - leverage))) @ design
    covariance = bread @ meat @ bread
    statistic = _wald(np.array([shift, tilt]), covariance)
    gain = error_gain(float(np.mean(np.square(residuals))), float(np.mean(np.square(left))))
    if chi_square_tail(statistic, 2) > limits.significance or gain <= limits.material:
        return []
    slope = 1 + tilt / spread
    intercept = shift + points.mean.mean() * (1 - slope)
    sentence = (
        f"The mean is off by a straight line: the targets follow {intercept:.4g} + {slope:.4g} "
        "times the predicted mean, where 0 and 1 are right."
    )
    figures = {"intercept": intercept, "slope": slope, "chi_square": statistic, "gain": gain}
    advice = (
        "Check that predictions were brought back to the units of the targets (`dist.unscale`) and "
        "that the data were drawn alike; otherwise train the mean for longer."
    )
    return [Finding("mean_off", "warning", sentence, figures, advice)]


def _wald(estimate: np.ndarray, covariance: np.ndarray) -> float:
    if not np.linalg.cond(covariance) < 1e12:  # a perfect line leaves no noise to compare with
        return math.inf if np.any(estimate != 0) else 0.0
    return float(estimate @ np.linalg.solve(covariance, estimate))


PREDICTION_RULES = (
    judge_spread,
    judge_spread_where_it_varies,
    judge_mean_against_reference,
    judge_mean_explains,
    judge_mean_units,
)
