"""Standardisation in float64, before anything is cast to the float32 of the networks."""

import numpy as np

from fisher8_jax.artifacts import TargetScaler


def scaled(scaler: TargetScaler, targets: np.ndarray) -> np.ndarray:
    """Targets in standard units."""
    return (targets - scaler.shift) / scaler.scale


def unscaled(scaler: TargetScaler, values: np.ndarray) -> np.ndarray:
    """Means and quantiles in the units of the data."""
    return values * scaler.scale + scaler.shift


def in_front(weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Row weights with as many axes as the targets."""
    return weights.reshape(-1, *(1,) * (targets.ndim - 1))


def input_moments(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and std of every column; a constant column keeps std 1."""
    total = weights.sum()
    shift = (weights @ inputs) / total
    scale = np.sqrt((weights @ (inputs - shift) ** 2) / total)
    # By its values, because rounding leaves a constant column a tiny spread.
    counted = inputs[weights > 0]
    is_constant = counted.max(axis=0) == counted.min(axis=0)
    return shift, np.where(is_constant, 1.0, scale)
