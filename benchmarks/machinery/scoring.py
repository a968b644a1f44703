"""The scores of the published tables, for one training; `vmap` gives them for all runs.

A row of `METRICS` adds a score to the cells of every experiment that uses `score`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fisher8_jax import Gaussian
from fisher8_jax.metrics import ece, nll, rmse


class Metric(NamedTuple):
    """A function of predictions, targets and `where`, and the decimals that tables print."""

    function: Callable[..., Array]
    decimals: int


# In the units of the targets; the NLL without `ln(2 pi)/2`.
METRICS = {
    "rmse": Metric(rmse, 2),
    "nll": Metric(functools.partial(nll, constant=False), 2),
    "ece": Metric(ece, 3),
}
SCORES = (*METRICS, "non_finite")


def score(dist: Gaussian, targets: Array, where: Array) -> dict[str, Array]:
    """Every metric, and the number of non-finite predictions; the names are `SCORES`.

    Args:
        dist: predictions for one test set, in the units of the targets.
        targets: the test targets, padded.
        where: False for padding.
    """
    finite = jnp.isfinite(dist.mean) & jnp.isfinite(dist.log_variance)
    scores = {name: metric.function(dist, targets, where=where) for name, metric in METRICS.items()}
    return {**scores, "non_finite": jnp.sum(where & ~finite)}
