"""Scores of predicted distributions for cross-validation and searches; larger is better."""

from types import MappingProxyType
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from fisher8_jax.estimator._frames import Table


def last_step(model: BaseEstimator, X: Table) -> tuple[Any, Any]:
    """The regressor at the end of a pipeline, and the rows as they arrive there.

    Args:
        model: a fitted `Fisher8Regressor`, or a `Pipeline` that ends with one.
        X: rows as the pipeline takes them.

    Returns:
        The regressor and its inputs, for everything that a pipeline does not forward.

    Example:
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from fisher8_jax.estimator import Fisher8Regressor, last_step
        >>> X = np.linspace(-1, 1, 50)[:, None]
        >>> model = Fisher8Regressor(n_members=1, hidden_layer_sizes=(4,), max_steps=50)
        >>> pipeline = make_pipeline(StandardScaler(), model).fit(X, X[:, 0])
        >>> regressor, rows = last_step(pipeline, X)
        >>> low, high = regressor.predict_interval(rows)
        >>> bool((low < high).all())
        True
    """
    if isinstance(model, Pipeline):
        return model[-1], model[:-1].transform(X) if len(model) > 1 else X
    return model, X


def neg_nll(model: BaseEstimator, X: Table, y: ArrayLike) -> float:
    """Minus the mean negative log-likelihood; missing targets do not count."""
    regressor, rows = last_step(model, X)
    return -float(np.nanmean(regressor.nll(rows, y)))


def neg_crps(model: BaseEstimator, X: Table, y: ArrayLike) -> float:
    """Minus the mean continuous ranked probability score, in the units of the targets."""
    regressor, rows = last_step(model, X)
    targets = np.asarray(y, np.float64)
    is_known = ~np.isnan(targets)
    filled = np.where(is_known, targets, np.asarray(regressor.scaler_.shift))
    values = np.asarray(regressor.predict_distribution(rows).crps(filled))
    return -float(np.mean(values[is_known]))


def neg_interval_score(model: BaseEstimator, X: Table, y: ArrayLike) -> float:
    """Minus the mean interval score at 90 %: width, and a fine for targets outside.

    Reference:
        Gneiting and Raftery, Strictly proper scoring rules, prediction, and estimation, 2007.
    """
    regressor, rows = last_step(model, X)
    low, high = regressor.predict_interval(rows, coverage=0.9)
    targets = np.asarray(y, np.float64)
    outside = np.maximum(low - targets, 0) + np.maximum(targets - high, 0)
    return -float(np.nanmean(high - low + 20 * outside))


SCORERS = MappingProxyType(
    {"neg_nll": neg_nll, "neg_crps": neg_crps, "neg_interval_score": neg_interval_score}
)
"""The scorers by name, for `scoring`: `cross_val_score(model, X, y, scoring=SCORERS["neg_nll"])`.

Several at once are `GridSearchCV(model, grid, scoring=dict(SCORERS), refit="neg_nll")`.
"""
