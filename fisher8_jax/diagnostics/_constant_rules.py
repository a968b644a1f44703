"""The rule of the doctor for a predicted spread that is the same for all points."""

import numpy as np

from fisher8_jax.diagnostics._alternatives import student_t_gain
from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    has_heavy_tails,
    same_in_all_groups,
    scaling_gain,
    without_effect,
)
from fisher8_jax.families import Predictive

# Standard deviations that differ by less than 1 % are taken to be the same.
_SAME = 0.02

_GROUP_SIZE, _MOST_GROUPS = 40, 5

_ADVICE = (
    "Predict the variance from the input: give the head an output for it "
    "(`heads.nnx.DistributionHead`), and check that it is trained, not detached or frozen. "
    "{tails}A common factor (`calibration.VarianceScaling`) does not cure this."
)


def is_same_everywhere(points: Predictions) -> bool:
    """Whether the predicted variances are equal, of enough points to group them."""
    values = points.log_variance
    return values.size >= 2 * _GROUP_SIZE and float(np.ptp(values)) < _SAME


def judge_constant_spread(
    points: Predictions, dist: Predictive, limits: Thresholds
) -> list[Finding]:
    """One variance for all points: does the noise depend on the mean or on an input?

    Where nothing is known to order the points by, noise of several sizes shows as heavy tails.
    """
    points = points.with_moments()
    if dist.is_discrete or not is_same_everywhere(points):
        return []
    scores = _without_line(points)
    if not scores.any():
        return []
    found = _dependence(scores, points, limits)
    if found is not None:
        return [found]
    if points.inputs is not None:  # looked at, and the noise does not depend on them
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


def _without_line(points: Predictions) -> np.ndarray:
    """The scores without what a mean in other units adds to them."""
    design = np.stack([np.ones_like(points.mean), points.mean - points.mean.mean()], axis=1)
    return without_effect(points.score, design)[1]


def _dependence(scores: np.ndarray, points: Predictions, limits: Thresholds) -> Finding | None:
    """The mean or the input on which the size of the scores depends most."""
    columns = {"the predicted mean": points.mean}
    if points.inputs is not None:
        columns |= {f"input {k}": column for k, column in enumerate(points.inputs.T)}
    number = min(_MOST_GROUPS, scores.size // _GROUP_SIZE)
    square = np.square(scores)
    best: tuple[float, float, str, np.ndarray] | None = None
    for name, column in columns.items():
        if not np.ptp(column) > 0:
            continue
        groups = np.array_split(np.argsort(column, kind="stable"), number)
        ratios = np.array([square[group].mean() for group in groups]) / square.mean()
        gain = float(np.mean([scaling_gain(ratio) for ratio in ratios]))
        gain -= 0.5 * (len(groups) - 1) / square.size  # of sampling noise alone
        probability = min(1.0, len(columns) * same_in_all_groups(np.abs(scores), groups))
        is_found = probability <= limits.significance and gain > limits.material
        if is_found and (best is None or gain > best[0]):
            best = gain, probability, name, ratios
    if best is None:
        return None
    gain, probability, name, ratios = best
    sentence = (
        "The predicted standard deviation is the same for all points, but the noise is not: from "
        f"the smallest to the largest values of {name}, squared scores relative to their mean are "
        f"{', '.join(f'{ratio:.2g}' for ratio in ratios)}, where 1 is right everywhere."
    )
    figures = {"probability": probability, "gain_in_nats": gain}
    return Finding("variance_constant", "warning", sentence, figures, _ADVICE.format(tails=""))
