"""RealMLP and TabM of pytabkit at their tuned defaults (`RealMLP-TD`, `TabM-D`).

Both predict a mean. The distribution around it is a Gaussian with the standard deviation of their
own errors on the fifth of the rows that they hold out by default and choose their epoch on. RealMLP
is also trained on the pinball loss of many quantiles, its own option.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pytabkit import RealMLP_TD_Regressor, TabM_D_Regressor

from benchmarks.experiments.tables.outside.run import Predictions

PACKAGES = ("pytabkit", "torch", "numpy", "scikit-learn")

HELD_OUT = 0.2  # their default

# Those of equal parts of probability, so that twice the mean pinball loss is the CRPS of 30 equally
# likely values; the second and the last but one are 0.05 and 0.95.
QUANTILES = 30
LEVELS = (np.arange(QUANTILES) + 0.5) / QUANTILES

# A model that hits every held-out row has no error to learn a width from.
_SMALLEST_STD = 1e-6


def fit(
    name: str, inputs: np.ndarray, targets: np.ndarray, seed: int
) -> Callable[[np.ndarray], Predictions]:
    """See `run.Fit`."""
    torch.set_num_threads(1)
    inputs, targets = inputs.astype(np.float32), targets.astype(np.float32)
    held_out = np.random.default_rng(seed).permutation(len(targets))[: _number(len(targets))]
    options: dict[str, Any] = {"device": "cpu", "n_threads": 1, "random_state": seed}
    if name == "realmlp_quantiles":
        loss = f"multi_pinball({','.join(f'{level:.6f}' for level in LEVELS)})"
        options |= {"train_metric_name": loss, "val_metric_name": loss}
    kind = TabM_D_Regressor if name == "tabm" else RealMLP_TD_Regressor
    model = kind(**options)
    model.fit(inputs, targets, val_idxs=held_out)

    def outputs(rows: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict(rows.astype(np.float32)), np.float64)

    if name == "realmlp_quantiles":
        return lambda rows: {"quantiles": np.sort(outputs(rows), axis=1), "levels": LEVELS}
    errors = outputs(inputs[held_out]).ravel() - targets[held_out]
    variance = max(float(np.mean(errors**2)), _SMALLEST_STD**2)

    def predict(rows: np.ndarray) -> Predictions:
        mean = outputs(rows).ravel()
        return {"mean": mean, "variance": np.full_like(mean, variance)}

    return predict


def _number(rows: int) -> int:
    return max(1, round(HELD_OUT * rows))
