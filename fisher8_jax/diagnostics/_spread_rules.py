"""Rules of the doctor about the width of one target's predictions."""

import math

import numpy as np

from fisher8_jax.diagnostics._alternatives import best_count_family, recalibrate
from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._input_rules import spread_dependence
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    rising_groups,
    same_in_all_groups,
    scaling_gain,
    spread_probability,
    squares_by_group,
)
from fisher8_jax.families import Poisson, Predictive

# The number of groups when calibration is compared across predicted variances.
_MOST_GROUPS = 5

# Standard deviations that are so many times too small are seldom due to overfitting alone.
_NOT_OVERFITTING = 4.0


def judge_spread(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Is the predicted variance right on average? The squares of the scores must average 1."""
    mean_score = float(np.mean(np.square(points.score)))
    gain = scaling_gain(mean_score)
    outside = float(np.mean(np.abs(points.pit - 0.5) > 0.45))
    if gain <= limits.material or not _is_off(points.score, outside, limits):
        return []
    mean = float(np.mean(np.square(points.z)))
    figures = {
        "mean_z_squared": mean,
        "mean_score_squared": mean_score,
        "outside_90": outside,
        "gain_in_nats": gain,
    }
    said = (
        f"squared normal scores average {mean_score:.3g} ± {math.sqrt(2 / points.z.size):.2g} "
        f"where 1 is right, and {100 * outside:.1f} % of the targets lie outside the 90 % intervals"
    )
    if mean_score > 1:
        return [_too_narrow(points, dist, limits, said, figures)]
    sentence = f"The predicted spread is too large: {said}."
    advice = (
        f"{recalibrate(dist, math.sqrt(mean))}; against the cause, train the scale for longer, "
        "lower any floor of the variance, or free the mean so that the variance need not cover "
        "for it."
    )
    return [Finding("variance_inflated", "warning", sentence, figures, advice)]


def _is_off(scores: np.ndarray, outside: float, limits: Thresholds) -> bool:
    """Whether the mean square of the scores is not 1 by chance, for heavy tails as well.

    Under these the chi-square law is too sure, so either the error is that of the squares at hand,
    or more than a tenth of the targets lie outside the 90 % intervals.
    """
    square, number = np.square(scores), scores.size
    error = float(square.std()) / math.sqrt(number)
    return spread_probability(scores) <= limits.significance and (
        limits.is_significant(float(square.mean()) - 1, error)
        or limits.is_significant(max(outside - 0.1, 0), math.sqrt(0.09 / number))
    )


def _too_narrow(
    points: Predictions,
    dist: Predictive,
    limits: Thresholds,
    said: str,
    figures: dict[str, float],
) -> Finding:
    if isinstance(dist, Poisson):
        name, gain = best_count_family(points)
        if gain > limits.material:
            return _overdispersed(name, said, figures | {"gain_of_family": gain})
    sentence = f"The predicted spread is too small: {said}."
    factor = math.sqrt(figures["mean_z_squared"])
    advice = (
        f"{recalibrate(dist, factor)}; against the cause, stop earlier, regularise, or train on "
        "more data."
    )
    if factor > _NOT_OVERFITTING and dist.is_location_scale:
        advice = (
            "Check first that the standard deviation was brought back to the units of the targets "
            f"together with the mean (`dist.unscale(shift, scale)`). Otherwise: {advice}"
        )
    return Finding("overconfident", "error", sentence, figures, advice)


def _overdispersed(name: str, said: str, figures: dict[str, float]) -> Finding:
    gain = figures["gain_of_family"]
    meaning = {
        "NegativeBinomial": "has a spread of its own",
        "ZeroInflatedPoisson": "has zeros of its own",
    }[name]
    sentence = f"The counts vary more than a Poisson allows, whose variance is its mean: {said}."
    advice = (
        f"Predict `families.{name}`, which {meaning}: with one common parameter it gains "
        f"{gain:.3g} nats per target at the same means."
    )
    return Finding("overdispersed", "error", sentence, figures, advice)


def judge_places(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Does the variance stand where the errors are? Scores must not depend on the predicted one."""
    points = points.with_moments()
    groups = variance_groups(points)
    if len(groups) < 2:
        return []
    by_input = spread_dependence(points, {}, limits)
    if by_input is not None and not dist.is_discrete:
        sentence = (
            f"The predicted variance misses how the noise depends on {by_input.name}: from its "
            f"smallest to its largest values, squared scores relative to their mean are {by_input},"
            " where 1 is right everywhere."
        )
        advice = "Let the scale see this input, and give it more training or capacity."
        return [Finding("variance_misplaced", "warning", sentence, by_input.figures, advice)]
    ratios, gain = squares_by_group(points.score, groups)
    probability = same_in_all_groups(np.abs(points.score), groups)
    if probability > limits.significance or gain <= limits.material:
        return []
    where = "smallest" if ratios[0] > ratios[-1] else "largest"
    sentence = (
        "The predicted variance is large and small in the wrong places: from the smallest to the "
        "largest predicted variances, squared normal scores relative to their mean are "
        f"{', '.join(f'{ratio:.2g}' for ratio in ratios)}, where 1 is right everywhere."
    )
    figures = {
        "smallest_group": float(ratios[0]),
        "largest_group": float(ratios[-1]),
        "probability": probability,
        "gain_in_nats": gain,
    }
    advice = (
        f"Predictions with the {where} variances are the least to be trusted. Give the scale more "
        "training or capacity, or less of both if it fits noise; no common factor cures this."
    )
    return [Finding("variance_misplaced", "warning", sentence, figures, advice)]


def variance_groups(points: Predictions, *, most: int = _MOST_GROUPS) -> list[np.ndarray]:
    """Positions of the points, in groups of rising predicted variance."""
    groups = rising_groups(points.log_variance, most)
    is_judged = groups and np.ptp(points.log_variance) >= 1e-3 and np.any(points.score)
    return groups if is_judged else []
