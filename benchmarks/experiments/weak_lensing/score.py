"""The score of the weak-lensing challenge."""

import jax.numpy as jnp
from jax import Array

from fisher8_jax import Gaussian

_ERROR_WEIGHT = 1000.0


def weak_lensing_score(dist: Gaussian, targets: Array) -> Array:
    """`-mean(z^2 + ln(variance) + 1000 (error)^2)` over the maps; larger is better.

    The challenge adds the two cosmological parameters: `.sum()` of the result is its score. Its own
    program also floors that sum at -1e6, which is not done here. The factor 1000 belongs to
    physical units, so unscale first.

    Returns:
        One term per target.
    """
    error = targets - dist.mean
    penalty = jnp.square(dist.standardize(targets)) + dist.log_variance
    return -jnp.mean(penalty + _ERROR_WEIGHT * jnp.square(error), axis=0)
