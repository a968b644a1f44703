"""The three scores of the published tables, for one training; `vmap` gives them for all lanes."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fisher8_jax import Gaussian
from fisher8_jax.metrics import ece, nll, rmse


class Scores(NamedTuple):
    """Scores in the units of the targets."""

    rmse: Array
    nll: Array
    ece: Array
    non_finite: Array


def score(dist: Gaussian, targets: Array, where: Array) -> Scores:
    """RMSE, mean NLL without `ln(2 pi)/2`, ECE, and the number of non-finite predictions.

    Args:
        dist: predictions for one test set, in the units of the targets.
        targets: the test targets, padded.
        where: False for padding.
    """
    finite = jnp.isfinite(dist.mean) & jnp.isfinite(dist.log_variance)
    return Scores(
        rmse=rmse(dist, targets, where=where),
        nll=nll(dist, targets, where=where, constant=False),
        ece=ece(dist, targets, where=where),
        non_finite=jnp.sum(where & ~finite),
    )
