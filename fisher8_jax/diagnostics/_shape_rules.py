"""Rules of the doctor about the shape of the errors of one target: tails, skewness, two peaks."""

import math
from statistics import NormalDist

import numpy as np

from fisher8_jax.diagnostics._alternatives import heavier_tails, student_t_gain
from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._input_rules import judge_constant_spread
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._spread_rules import judge_places, judge_spread, variance_groups
from fisher8_jax.diagnostics._statistics import (
    Thresholds,
    chi_square_tail,
    has_heavy_tails,
    kurtosis_score,
    squares_by_group,
)
from fisher8_jax.families import Gaussian, Predictive

# Kurtosis of fewer points is not worth a test.
_FEWEST_FOR_TAILS = 30

# Each holds the same share of a normal distribution.
_BINS = 10


def judge_tails(points: Predictions, dist: Predictive, limits: Thresholds) -> list[Finding]:
    """Are there more far targets than the family allows? By the kurtosis of the scores.

    A variance in the wrong places makes tails heavy, too; if `judge_places` finds that, points
    of like predicted variance are brought to one scale first. Where a variance that is the same
    everywhere should depend on the mean or on an input, that alone is said.
    """
    if dist.is_discrete or points.score.size < _FEWEST_FOR_TAILS or not np.ptp(points.score):
        return []
    constant = judge_constant_spread(points, dist, limits)
    if constant and "probability" in constant[0].figures:
        return []
    misplaced = judge_places(points, dist, limits)
    if misplaced and "largest_group" not in misplaced[0].figures:
        return []  # it depends on an input
    if misplaced:
        points = points.with_moments()
        groups = variance_groups(points, most=points.score.size)
        ratios, _ = squares_by_group(points.score, groups)
        scores = np.concatenate(
            [points.score[g] / math.sqrt(r) for g, r in zip(groups, ratios, strict=True) if r > 0]
        )
    else:
        scores = points.score
    gain, df = student_t_gain(scores)
    # The scores of other families than the Gaussian change their shape under a wrong spread.
    is_unsafe = not isinstance(dist, Gaussian) and judge_spread(points, dist, limits)
    shape = None if constant or is_unsafe else _judge_shape(scores, gain, dist, limits)
    if shape is not None:
        return [shape]
    if not has_heavy_tails(scores, limits) or gain <= limits.material:
        return []
    far = float(np.mean(np.abs(scores) > 3 * scores.std()))
    sentence = (
        f"The tails are heavier than {type(dist).__name__} allows: {100 * far:.2g} % of the normal "
        "scores lie beyond three standard deviations, where 0.27 % would; as a Student-t they "
        f"would have about {df:g} degrees of freedom."
    )
    figures = {
        "beyond_3": far,
        "df": df,
        "kurtosis_score": kurtosis_score(scores),
        "gain_in_nats": gain,
    }
    advice = heavier_tails(dist, gain, df)
    if constant:
        advice = f"If the noise does not depend on the input: {advice}"
    return [Finding("heavy_tails", "warning", sentence, figures, advice)]


def _judge_shape(
    scores: np.ndarray, tails_gain: float, dist: Predictive, limits: Thresholds
) -> Finding | None:
    """Would another shape gain more than heavier tails do? By ten bins of the normal density.

    Mean and spread are taken out first, which makes the test err on the side of silence.
    """
    standard = (scores - scores.mean()) / scores.std()
    edges = [NormalDist().inv_cdf(k / _BINS) for k in range(1, _BINS)]
    counts = np.bincount(np.searchsorted(edges, standard), minlength=_BINS)
    share = counts[counts > 0] / scores.size
    gain = float(np.sum(share * np.log(share * _BINS)))
    probability = chi_square_tail(2 * scores.size * gain, _BINS - 1)
    gain -= 0.5 * (_BINS - 1) / scores.size  # of sampling noise alone
    if probability > limits.significance or gain <= max(limits.material, tails_gain):
        return None
    skewness, kurtosis = float(np.mean(standard**3)), float(np.mean(standard**4))
    figures = {
        "skewness": skewness,
        "kurtosis": kurtosis,
        "probability": probability,
        "gain_in_nats": gain,
    }
    if limits.is_significant(skewness, math.sqrt(6 / scores.size)):
        side = "high" if skewness > 0 else "low"
        what = f"they are skewed, with the long tail on the {side} side"
        family = "a skewed family, for positive targets `families.LogNormal` or `families.Gamma`"
    elif kurtosis < 3:
        what = "they crowd on both sides of the mean, as those of two groups do"
        family = "`families.GaussianMixture`"
    else:
        return None
    sentence = (
        f"The errors do not have the shape that {type(dist).__name__} allows: {what}. Normal "
        f"scores have a skewness of {skewness:.2g} and a kurtosis of {kurtosis:.2g}, where 0 and "
        "3 are right."
    )
    advice = (
        f"Predict {family}, or recalibrate on held-out data with `calibration.IsotonicPIT`. "
        "`plots.plot_pit` shows the shape."
    )
    return Finding("wrong_shape", "warning", sentence, figures, advice)
