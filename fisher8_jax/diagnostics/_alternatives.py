"""Another family that would explain the same targets better, and how a spread is repaired."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.families import (
    Gaussian,
    Laplace,
    LowRankGaussian,
    MultivariateGaussian,
    NegativeBinomial,
    Poisson,
    Predictive,
    StudentT,
    StudentTLearnedDf,
    ZeroInflatedPoisson,
)

_DEGREES_OF_FREEDOM = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0)

_LIGHT_TAILS = (Gaussian, MultivariateGaussian, LowRankGaussian, Laplace)


def recalibrate(dist: Predictive, factor: float) -> str:
    """How to repair the spread of trained predictions."""
    if dist.is_location_scale and dist.can_scale_variance:
        return (
            f"Multiply the predicted standard deviations by {factor:.3g} (fit the factor on "
            "held-out data with `calibration.VarianceScaling`)"
        )
    if dist.is_discrete:
        return "Train the model again"
    return "Recalibrate on held-out data with `calibration.IsotonicPIT`"


def heavier_tails(dist: Predictive, gain: float, df: float) -> str:
    """What to predict instead of a family whose tails are too light."""
    if isinstance(dist, _LIGHT_TAILS):
        return (
            f"Predict `families.StudentT` with df = {df:g}, or `families.StudentTLearnedDf`: about "
            f"{gain:.3g} nats per target, and far targets pull less. Then look at the far targets: "
            "some may be errors of measurement."
        )
    if isinstance(dist, StudentT | StudentTLearnedDf):
        return "Use fewer degrees of freedom, and look at the far targets for errors."
    return (
        "Look at the far targets for errors; use a family with heavier tails, or recalibrate on "
        "held-out data with `calibration.IsotonicPIT`."
    )


def student_t_gain(scores: np.ndarray) -> tuple[float, float]:
    """Nats per target by which the best Student-t explains scores better than the best normal.

    Returns:
        The gain and the degrees of freedom.
    """
    square = np.square(scores)
    normal = -0.5 * (1 + math.log(2 * math.pi * float(square.mean())))
    fits = [(_student_t_likelihood(square, df) - normal, df) for df in _DEGREES_OF_FREEDOM]
    return max(fits)


def _student_t_likelihood(square: np.ndarray, df: float) -> float:
    """Mean log-density at the best scale, found by expectation and maximisation."""
    scale_sq = float(square.mean())
    for _ in range(40):
        scale_sq = float(np.mean((df + 1) * square / (df + square / scale_sq)))
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
    constant -= 0.5 * math.log(df * math.pi * scale_sq)
    return constant - (df + 1) / 2 * float(np.mean(np.log1p(square / (df * scale_sq))))


def best_count_family(points: Predictions) -> tuple[str, float]:
    """Which family of counts explains the targets best at the predicted means of a Poisson.

    One common parameter is fitted for each: the concentration of a negative binomial, or the share
    of additional zeros.

    Returns:
        Its name and the nats per target that it gains over the Poisson.
    """
    targets, mean = jnp.asarray(points.targets), jnp.asarray(points.mean)
    poisson, *others = _count_likelihoods(targets, mean)
    gains = {
        name: float(poisson) - float(np.nanmin(values))
        for name, values in zip(("NegativeBinomial", "ZeroInflatedPoisson"), others, strict=True)
    }
    best = max(gains, key=lambda name: gains[name])
    return best, gains[best]


@jax.jit
def _count_likelihoods(targets: Array, mean: Array) -> tuple[Array, Array, Array]:
    """Mean NLL of the Poisson, and of its alternatives over a grid of their common parameter."""

    def negative_binomial(log_concentration: Array) -> Array:
        concentration = jnp.full_like(mean, log_concentration)
        return NegativeBinomial(jnp.log(mean), concentration).nll(targets).mean()

    def zero_inflated(logit: Array) -> Array:
        # The rate is raised so that the mean of the counts stays as predicted.
        rate = jnp.log(mean) + jax.nn.softplus(logit)
        return ZeroInflatedPoisson(jnp.full_like(mean, logit), rate).nll(targets).mean()

    return (
        Poisson(jnp.log(mean)).nll(targets).mean(),
        jax.lax.map(negative_binomial, jnp.linspace(-4.0, 6.0, 41, dtype=mean.dtype)),
        jax.lax.map(zero_inflated, jnp.linspace(-5.0, 4.0, 41, dtype=mean.dtype)),
    )
