"""LightGBMLSS: boosted mean and standard deviation of a Gaussian, with a small search."""

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
from lightgbmlss.distributions.Gaussian import Gaussian
from lightgbmlss.model import LightGBMLSS

from benchmarks.experiments.tables.outside.run import Predictions
from benchmarks.experiments.tables.search import (
    PATIENCE,
    Space,
    best_trial,
    gaussian_nll,
    held_out_tenth,
)

PACKAGES = ("lightgbmlss", "lightgbm", "torch", "numpy")

SPACE: Space = {
    "learning_rate": (0.02, 0.2),
    "num_leaves": (6, 64),
    "min_data_in_leaf": (2, 40),
    "lambda_l2": (0.01, 10.0),
}
MOST_TREES = 1000


def fit(
    name: str, inputs: np.ndarray, targets: np.ndarray, seed: int
) -> Callable[[np.ndarray], Predictions]:
    """See `run.Fit`."""
    torch.set_num_threads(1)
    held_out, others = held_out_tenth(len(targets), seed)

    def run(settings: dict[str, Any]) -> tuple[float, int]:
        train = lightgbm.Dataset(inputs[others], targets[others])
        judged = lightgbm.Dataset(inputs[held_out], targets[held_out], reference=train)
        model = LightGBMLSS(Gaussian())
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        options = {"valid_sets": [judged], "valid_names": ["held out"], "callbacks": [stop]}
        model.train(_settings(settings), train, num_boost_round=MOST_TREES, **options)
        score = gaussian_nll(targets[held_out], *_moments(model, inputs[held_out]))
        return score, max(1, model.booster.best_iteration)

    best = best_trial(run, SPACE, seed)
    model = LightGBMLSS(Gaussian())
    train = lightgbm.Dataset(inputs, targets)
    model.train(_settings(best.settings), train, num_boost_round=best.trees)
    return lambda rows: dict(zip(("mean", "variance"), _moments(model, rows), strict=True))


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {"num_threads": 1, "deterministic": True, "feature_pre_filter": False, **settings}


def _moments(model: LightGBMLSS, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = model.predict(pd.DataFrame(rows), pred_type="parameters").to_numpy(np.float64)
    return found[:, 0], np.maximum(found[:, 1] ** 2, 1e-12)
