"""From the mean of the targets to the field that sets it; see `Family.initial_fields`."""

import numpy as np


def safe_log(mean: np.ndarray) -> np.ndarray:
    """`ln(mean)`, at least `ln(0.001)`: targets may all be 0."""
    return np.log(np.maximum(mean, 1e-3))


def safe_logit(mean: np.ndarray) -> np.ndarray:
    """`ln(mean / (1 - mean))`, of a mean between 0.001 and 0.999."""
    inside = np.clip(mean, 1e-3, 1 - 1e-3)
    return np.log(inside) - np.log1p(-inside)
