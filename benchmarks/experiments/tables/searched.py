"""Boosted trees with a small search; `models.py` has them with their defaults."""

from typing import Any

import numpy as np

from benchmarks.experiments.tables.models import SMALLEST_VARIANCE, Fit, Predict, gaussian, units_of
from benchmarks.experiments.tables.search import (
    PATIENCE,
    Space,
    best_trial,
    gaussian_nll,
    held_out_tenth,
)
from benchmarks.experiments.uci.data import Split
from fisher8_jax.families import Predictive

CATBOOST: Space = {
    "learning_rate": (0.02, 0.2),
    "depth": (4, 8),
    "l2_leaf_reg": (1.0, 10.0),
}
HIST_GRADIENT_BOOSTING: Space = {
    "learning_rate": (0.02, 0.2),
    "max_leaf_nodes": (6, 64),
    "min_samples_leaf": (2, 40),
    "l2_regularization": (0.01, 10.0),
}
MOST_TREES = 1000


def fit_catboost(split: Split, seed: int) -> Predict:
    """Mean and variance by one loss."""
    from catboost import CatBoostRegressor

    inputs, targets = split.train_inputs, _standard(split)
    held_out, others = held_out_tenth(len(targets), seed)
    options: dict[str, Any] = {
        "loss_function": "RMSEWithUncertainty",
        "random_seed": seed,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    }

    def run(settings: dict[str, Any]) -> tuple[float, int]:
        model = CatBoostRegressor(iterations=MOST_TREES, **options, **settings)
        judged = (inputs[held_out], targets[held_out])
        model.fit(inputs[others], targets[others], eval_set=judged, early_stopping_rounds=PATIENCE)
        mean, variance = model.predict(inputs[held_out]).T
        return gaussian_nll(targets[held_out], mean, variance), max(1, model.tree_count_)

    best = best_trial(run, CATBOOST, seed)
    model = CatBoostRegressor(iterations=best.trees, **options, **best.settings)
    model.fit(inputs, targets)
    return lambda rows: gaussian(*model.predict(rows).T)


def fit_hist_gradient_boosting(split: Split, seed: int) -> Predict:
    """Trees for the mean, searched by its error, and trees for squared errors of other folds."""
    from sklearn.ensemble import HistGradientBoostingRegressor as Trees
    from sklearn.model_selection import KFold, cross_val_predict

    inputs, targets = split.train_inputs, _standard(split)
    held_out, others = held_out_tenth(len(targets), seed)

    def searched(values: np.ndarray, score: Any, **options: Any) -> Trees:
        def run(settings: dict[str, Any]) -> tuple[float, int]:
            model = Trees(
                max_iter=MOST_TREES,
                early_stopping=True,
                n_iter_no_change=PATIENCE,
                random_state=seed,
                **options,
                **settings,
            )
            judged = {"X_val": inputs[held_out], "y_val": values[held_out]}
            model.fit(inputs[others], values[others], **judged)
            stages = model.staged_predict(inputs[held_out])
            scores = [score(values[held_out], found) for found in stages]
            return min(scores), int(np.argmin(scores)) + 1

        best = best_trial(run, HIST_GRADIENT_BOOSTING, seed)
        options |= {"max_iter": best.trees, "random_state": seed, **best.settings}
        return Trees(early_stopping=False, **options)

    mean = searched(targets, lambda y, found: float(np.mean((y - found) ** 2)))
    folds = KFold(5, shuffle=True, random_state=seed)
    squares = (targets - cross_val_predict(mean, inputs, targets, cv=folds)) ** 2
    size = float(squares.mean())
    relative = np.maximum(squares / size, 1e-6)
    # The deviance of the gamma family is the Gaussian NLL of a variance.
    variance = searched(
        relative,
        lambda y, found: gaussian_nll(
            np.sqrt(y), np.zeros(len(y)), np.maximum(found, SMALLEST_VARIANCE)
        ),
        loss="gamma",
    )
    mean.fit(inputs, targets)
    variance.fit(inputs, relative)

    def predict(rows: np.ndarray) -> Predictive:
        relative = np.maximum(variance.predict(rows), SMALLEST_VARIANCE)
        return gaussian(mean.predict(rows), size * relative)

    return predict


def _standard(split: Split) -> np.ndarray:
    shift, scale = units_of(split)
    return (split.train_targets - shift) / scale


SEARCHED: dict[str, Fit] = {
    "hist_gradient_boosting_searched": fit_hist_gradient_boosting,
    "catboost_searched": fit_catboost,
}
