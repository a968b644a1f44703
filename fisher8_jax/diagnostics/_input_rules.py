"""Rules of the doctor about what predictions miss of the inputs that they were made from."""

import math
from typing import NamedTuple

import numpy as np

from fisher8_jax.diagnostics._alternatives import student_t_gain
from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import (
    GROUP_SIZE,
    Thresholds,
    error_gain,
    has_heavy_tails,
    rising_groups,
    same_in_all_groups,
    squares_by_group,
    without_effect,
)
from fisher8_jax.diagnostics._training_rules import distance_from_unit_scale
from fisher8_jax.families import Predictive

# Standard deviations that differ by less than 1 % are taken to be the same.
_SAME = 0.02

_MOST_SPREAD_GROUPS, _MOST_MEAN_GROUPS = 5, 10

_ADVICE = (
    "Predict the variance from the input: give the head an output for it "
    "(`heads.nnx.DistributionHead`), and check that it is trained, not detached or frozen. "
    "{tails}A common factor (`calibration.VarianceScaling`) does not cure this."
)


class Dependence(NamedTuple):
    """The column that something depends on most, and how its groups differ."""

    name: str
    values: np.ndarray
    by_group: np.ndarray
    figures: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{value:.2g}" for value in self.by_group)


def is_same_everywhere(points: Predictions) -> bool:
    """Whether the predicted variances are equal, of enough points to group them."""
    values = points.log_variance
    return values.size >= 2 * GROUP_SIZE and float(np.ptp(values)) < _SAME


def judge_constant_spread(
    points: Predictions, dist: Predictive, limits: Thresholds
) -> list[Finding]:
    """One variance for all points: does the noise depend on the mean or on an input?

    Where nothing is known to order the points by, noise of several sizes shows as heavy tails.
    """
    points = points.with_moments()
    if dist.is_discrete or not is_same_everywhere(points):
        return []
    found = spread_dependence(points, {"the predicted mean": points.mean}, limits)
    if found is not None:
        sentence = (
            "The predicted standard deviation is the same for all points, but the noise is not: "
            f"from the smallest to the largest values of {found.name}, squared scores relative to "
            f"their mean are {found}, where 1 is right everywhere."
        )
        advice = _ADVICE.format(tails="")
        return [Finding("variance_constant", "warning", sentence, found.figures, advice)]
    scores = _without_line(points)
    if points.inputs is not None or not scores.any():  # looked at, and the noise is the same
        return []
    gain, _ = student_t_gain(scores)
    if not has_heavy_tails(scores, limits) or gain <= limits.material:
        return []
    sentence = (
        "The predicted standard deviation is the same for all points, and the tails are heavy: "
        "noise whose size depends on the input looks like this."
    )
    advice = _ADVICE.format(
        tails="Pass `inputs` to `doctor` to test it; if the noise does not depend on them, the "
        "tails themselves are heavy. "
    )
    figures = {"gain_in_nats": gain}
    return [Finding("variance_constant", "warning", sentence, figures, advice)]


def spread_dependence(
    points: Predictions, columns: dict[str, np.ndarray], limits: Thresholds
) -> Dependence | None:
    """The input, or one of `columns`, on which the size of the scores depends most."""
    scores = _without_line(points)
    columns = columns | _inputs(points)
    best: Dependence | None = None
    for name, column in columns.items():
        groups = rising_groups(column, _MOST_SPREAD_GROUPS)
        if len(groups) < 2 or not scores.any():
            continue
        ratios, gain = squares_by_group(scores, groups)
        probability = min(1.0, len(columns) * same_in_all_groups(np.abs(scores), groups))
        found = _found(name, column, ratios, probability, gain, limits)
        best = _better(best, found)
    return best


def judge_missed_input(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Do targets depend on an input in a way that the mean does not follow?"""
    points = points.with_moments()
    if points.inputs is None or not dist.is_ordered:
        return []
    scores = _without_line(points)
    columns = _inputs(points)
    best: Dependence | None = None
    for name, column in columns.items():
        groups = rising_groups(column, _MOST_MEAN_GROUPS)
        # In rows that do not belong together scores depend on inputs, but targets do not.
        if len(groups) < 2 or same_in_all_groups(points.targets, groups) > limits.significance:
            continue
        means = np.array([scores[group].mean() for group in groups])
        within = sum(float(np.sum(np.square(scores[g] - scores[g].mean()))) for g in groups)
        gain = error_gain(float(np.mean(np.square(scores))), within / scores.size)
        gain -= 0.5 * (len(groups) - 1) / scores.size
        probability = min(1.0, len(columns) * same_in_all_groups(scores, groups))
        best = _better(best, _found(name, column, means, probability, gain, limits))
    if best is None:
        return []
    sentence = (
        f"The mean misses how the targets depend on {best.name}: from its smallest to its largest "
        f"values, normal scores average {best}, where 0 is right everywhere."
    )
    mean, std = float(best.values.mean()), float(best.values.std())
    if distance_from_unit_scale(mean, std) > 1:
        advice = (
            f"Standardise what the network sees: {best.name} has mean {mean:.3g} and standard "
            f"deviation {std:.3g}. Scale held-out inputs by the figures of the training rows. If "
            "both was done, train for longer, or give the network more units or layers."
        )
        return [Finding("input_scale_off", "error", sentence, best.figures, advice)]
    advice = (
        "Compare with the NLL of the training rows. If it is as high, train for longer, or give "
        "the network more units or layers; if it is much lower, stop earlier, regularise, or train "
        "on more data."
    )
    return [Finding("mean_misses_input", "error", sentence, best.figures, advice)]


def _inputs(points: Predictions) -> dict[str, np.ndarray]:
    return {} if points.inputs is None else {f"input {k}": c for k, c in enumerate(points.inputs.T)}


def _found(
    name: str,
    values: np.ndarray,
    by_group: np.ndarray,
    probability: float,
    gain: float,
    limits: Thresholds,
) -> Dependence | None:
    if probability > limits.significance or not gain > limits.material or math.isinf(gain):
        return None
    return Dependence(name, values, by_group, {"probability": probability, "gain_in_nats": gain})


def _better(first: Dependence | None, second: Dependence | None) -> Dependence | None:
    if first is None or second is None:
        return first or second
    return max(first, second, key=lambda found: found.figures["gain_in_nats"])


def _without_line(points: Predictions) -> np.ndarray:
    """The scores without what a mean in other units adds to them."""
    design = np.stack([np.ones_like(points.mean), points.mean - points.mean.mean()], axis=1)
    return without_effect(points.score, design)[1]
