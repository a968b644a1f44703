"""Boosted trees in two stages with a small search each; `models.py` has them with their defaults.

The first stage predicts the mean and is searched by its squared error, the second the variance of
the errors of other folds and is searched by its NLL. One loss for both, as `models.fit_catboost`
has it, stops as soon as the variance overfits, where the mean could still improve.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from benchmarks.experiments.tables.models import (
    SMALLEST_VARIANCE,
    Fit,
    Predict,
    gaussian,
    units_of,
)
from benchmarks.experiments.tables.search import (
    PATIENCE,
    Space,
    best_trial,
    gaussian_nll,
    held_out_tenth,
)
from benchmarks.experiments.uci.data import Split
from fisher8_jax.families import Predictive

MOST_TREES = 1000
FOLDS = 5

Score = Callable[[np.ndarray], float]
"""Of predictions at the held-out rows; lower is better."""


class Trees(Protocol):
    """How a library grows trees for the mean (stage 1) and for the variance (stage 2)."""

    space: ClassVar[Space]

    def make(self, stage: int, seed: int, trees: int, **settings: Any) -> Any:
        """An unfitted model."""

    def values(self, stage: int, targets: np.ndarray) -> np.ndarray:
        """What is fitted: the targets, or something made of the errors."""

    def grow(self, model: Any, train: tuple, held_out: tuple, score: Score) -> tuple[float, int]:
        """Fits until held-out rows no longer improve: the best score, and its number of trees."""

    def predict(self, stage: int, model: Any, inputs: np.ndarray) -> np.ndarray:
        """Means, or variances."""


class HistGradientBoosting:
    """scikit-learn's; the deviance of its gamma loss is the Gaussian NLL of a variance."""

    space: ClassVar[Space] = {
        "learning_rate": (0.02, 0.2),
        "max_leaf_nodes": (6, 64),
        "min_samples_leaf": (2, 40),
        "l2_regularization": (0.01, 10.0),
    }

    def make(self, stage: int, seed: int, trees: int, **settings: Any) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        loss = "squared_error" if stage == 1 else "gamma"
        settings |= {"max_iter": trees, "early_stopping": False, "n_iter_no_change": PATIENCE}
        return HistGradientBoostingRegressor(loss=loss, random_state=seed, **settings)

    def values(self, stage: int, targets: np.ndarray) -> np.ndarray:
        return targets if stage == 1 else np.maximum(targets**2, 1e-6)

    def grow(self, model: Any, train: tuple, held_out: tuple, score: Score) -> tuple[float, int]:
        inputs, values = held_out
        model.set_params(early_stopping=True).fit(*train, X_val=inputs, y_val=values)
        scores = [score(found) for found in model.staged_predict(inputs)]
        return min(scores), int(np.argmin(scores)) + 1

    def predict(self, stage: int, model: Any, inputs: np.ndarray) -> np.ndarray:
        return model.predict(inputs)


class CatBoost:
    """CatBoost; its second stage fits mean and variance of the errors and uses the variance."""

    space: ClassVar[Space] = {
        "learning_rate": (0.02, 0.2),
        "depth": (4, 8),
        "l2_leaf_reg": (1.0, 10.0),
    }

    def make(self, stage: int, seed: int, trees: int, **settings: Any) -> Any:
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            loss_function="RMSE" if stage == 1 else "RMSEWithUncertainty",
            iterations=trees,
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            **settings,
        )

    def values(self, stage: int, targets: np.ndarray) -> np.ndarray:
        return targets

    def grow(self, model: Any, train: tuple, held_out: tuple, score: Score) -> tuple[float, int]:
        model.fit(*train, eval_set=held_out, early_stopping_rounds=PATIENCE)
        stage = 1 if model.get_param("loss_function") == "RMSE" else 2
        return score(self.predict(stage, model, held_out[0])), max(1, model.tree_count_)

    def predict(self, stage: int, model: Any, inputs: np.ndarray) -> np.ndarray:
        found = model.predict(inputs)
        return found if stage == 1 else found[:, 1]


def fit_two_stages(library: Trees, split: Split, seed: int) -> Predict:
    """Searches and fits both stages."""
    from sklearn.model_selection import KFold

    shift, scale = units_of(split)
    inputs, targets = split.train_inputs, (split.train_targets - shift) / scale
    held_out, others = held_out_tenth(len(targets), seed)

    def searched(stage: int, values: np.ndarray, score: Score) -> Callable[[], Any]:
        train, judged = ((inputs[rows], values[rows]) for rows in (others, held_out))

        def run(settings: dict[str, Any]) -> tuple[float, int]:
            model = library.make(stage, seed, MOST_TREES, **settings)
            return library.grow(model, train, judged, score)

        best = best_trial(run, library.space, seed)
        return lambda: library.make(stage, seed, best.trees, **best.settings)

    make_mean = searched(1, targets, lambda mean: float(np.mean((targets[held_out] - mean) ** 2)))
    errors = np.empty_like(targets)
    for kept, left in KFold(FOLDS, shuffle=True, random_state=seed).split(inputs):
        model = make_mean().fit(inputs[kept], targets[kept])
        errors[left] = targets[left] - library.predict(1, model, inputs[left])
    size = float(np.sqrt(np.mean(errors**2))) or 1.0
    errors /= size

    def nll(variance: np.ndarray) -> float:
        return gaussian_nll(errors[held_out], np.zeros(len(held_out)), _bounded(variance))

    values = library.values(2, errors)
    mean, variance = (
        make_mean().fit(inputs, targets),
        searched(2, values, nll)().fit(inputs, values),
    )

    def predict(rows: np.ndarray) -> Predictive:
        relative = _bounded(library.predict(2, variance, rows))
        return gaussian(library.predict(1, mean, rows), size**2 * relative)

    return predict


def _bounded(variance: np.ndarray) -> np.ndarray:
    return np.maximum(variance, SMALLEST_VARIANCE)


SEARCHED: dict[str, Fit] = {
    "hist_gradient_boosting_searched": functools.partial(fit_two_stages, HistGradientBoosting()),
    "catboost_searched": functools.partial(fit_two_stages, CatBoost()),
}
