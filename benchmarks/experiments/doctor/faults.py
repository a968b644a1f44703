"""Targets that a stated prediction would not draw, made in one way for every family.

A right model has standard normal scores. A fault is another law of the scores: the targets are the
predicted quantiles at the probabilities of scores that are wider, narrower, shifted, wider where
the predicted variance is small, or heavy-tailed.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from fisher8_jax.families import Family

Scores = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _wider(rng: np.random.Generator, rank: np.ndarray) -> np.ndarray:
    return 1.5 * rng.normal(size=rank.shape)


def _narrower(rng: np.random.Generator, rank: np.ndarray) -> np.ndarray:
    return rng.normal(size=rank.shape) / 1.5


def _shifted(rng: np.random.Generator, rank: np.ndarray) -> np.ndarray:
    return 0.5 + rng.normal(size=rank.shape)


def _misplaced(rng: np.random.Generator, rank: np.ndarray) -> np.ndarray:
    return 2.0 ** (1 - 2 * rank) * rng.normal(size=rank.shape)


def _heavy(rng: np.random.Generator, rank: np.ndarray) -> np.ndarray:
    return rng.standard_t(2.5, size=rank.shape)


# The fault, the code that names it, and the scores that make it.
FAULTS: dict[str, tuple[str, Scores]] = {
    "1.5 times wider": ("overconfident", _wider),
    "1.5 times narrower": ("variance_inflated", _narrower),
    "shifted by half a deviation": ("mean_off", _shifted),
    "4 times wider at small than at large variances": ("variance_misplaced", _misplaced),
    "tails of 2.5 degrees of freedom": ("heavy_tails", _heavy),
}


def faulty_targets(dist: Family, fault: str, rng: np.random.Generator) -> Array:
    """Targets for the predictions that have the fault."""
    variance = np.asarray(dist.variance, np.float64)
    order = np.argsort(np.argsort(variance, axis=0), axis=0)
    scores = FAULTS[fault][1](rng, order / (variance.shape[0] - 1))
    return _quantile(dist, jnp.asarray(np.clip(scores, -5, 5), jnp.float32))


@jax.jit
def _quantile(dist: Family, scores: Array) -> Array:
    return dist.quantile(ndtr(scores))
