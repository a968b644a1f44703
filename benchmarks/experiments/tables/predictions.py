"""Predictions that came as arrays: as distributions, and the scores of quantiles."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Predictive

INTERVAL = (0.05, 0.95)


def distribution(predictions: Mapping[str, np.ndarray], rows: int) -> Predictive:
    """A Gaussian, or the equal mixture of members; the last row is repeated up to `rows`."""
    mean, variance = (_repeated(predictions[name], rows) for name in ("mean", "variance"))
    dist = Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(np.log(variance), jnp.float32))
    return dist if mean.ndim == 1 else Mixture(dist)


def gaussian_nll_of(dist: Predictive, targets: np.ndarray) -> np.ndarray:
    """The NLL of Gaussians with the same means and variances, as some publications print it."""
    mean, variance = (np.asarray(part, np.float64) for part in (dist.mean, dist.variance))
    return 0.5 * (np.log(2 * np.pi * variance) + (targets - mean) ** 2 / variance)


def quantile_scores(
    quantiles: np.ndarray, levels: np.ndarray, targets: np.ndarray
) -> dict[str, float]:
    """Scores of predicted quantiles, one row for each target.

    The mean is that of the quantiles. Twice the mean pinball loss is the CRPS of a distribution
    whose equally likely values they are, if their levels are the middles of equal parts.
    """
    errors = targets[:, None] - quantiles
    pinball = np.maximum(levels * errors, (levels - 1) * errors)
    low, high = (quantiles[:, np.argmin(np.abs(levels - level))] for level in INTERVAL)
    return {
        "rmse": float(np.sqrt(np.mean((quantiles.mean(axis=1) - targets) ** 2))),
        "crps": float(2 * pinball.mean()),
        "coverage": float(np.mean((low <= targets) & (targets <= high))),
        "width": float(np.mean(high - low)),
    }


def _repeated(values: np.ndarray, rows: int) -> np.ndarray:
    places = np.minimum(np.arange(rows), values.shape[-1] - 1)
    return values[..., places]
