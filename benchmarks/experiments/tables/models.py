"""The models, each used as its documentation recommends, with default settings.

What all return is a function of new rows. Predictions are distributions in units of the training
targets: shifted by their mean and divided by their standard deviation.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.uci.data import Split
from fisher8_jax import Gaussian
from fisher8_jax.families import Predictive
from fisher8_jax.training import (
    KLRadius,
    LearningRate,
    LossGradient,
    Method,
    OutputNaturalGradient,
)

Predict = Callable[[np.ndarray], Predictive]
Fit = Callable[[Split, int], Predict]

# Adam on the NLL.
DEEP_ENSEMBLE = tuple(Method(LossGradient("nll"), LearningRate(rate)) for rate in (0.001, 0.01))
FIRST_ORDER = Method(OutputNaturalGradient(), KLRadius(0.3, warm_up=0.2), second_moment=None)

# A boosted variance may not be less than this part of the mean squared error of other folds: on
# sets with hardly any noise single leaves would fall to 0, and the NLL would be infinite.
SMALLEST_VARIANCE = 1e-2


def units_of(split: Split) -> tuple[float, float]:
    """The mean and the standard deviation of the training targets."""
    return float(split.train_targets.mean()), float(split.train_targets.std()) or 1.0


def fit_fisher8(split: Split, seed: int, **settings: Any) -> Predict:
    """The estimator of this package."""
    from fisher8_jax.estimator import Fisher8Regressor

    model = Fisher8Regressor(random_state=seed, show_progress=False, **settings)
    model.fit(split.train_inputs, split.train_targets)
    return lambda inputs: model.predict_distribution(inputs).standard


def fit_deep_ensemble(split: Split, seed: int) -> Predict:
    """The same networks, rows and early stopping, by Adam on the NLL at the better of two rates.

    As is usual, numbers are not in bins, and the prediction is the members' plain mixture.
    """
    return fit_fisher8(split, seed, methods=DEEP_ENSEMBLE, bins=False, shrink_variance=False)


def fit_plain_mixture(split: Split, seed: int) -> Predict:
    """The estimator without the factor of the members' variances."""
    return fit_fisher8(split, seed, shrink_variance=False)


def fit_shrunk_ensemble(split: Split, seed: int) -> Predict:
    """The deep ensemble with that factor."""
    return fit_fisher8(split, seed, methods=DEEP_ENSEMBLE, bins=False)


def fit_first_order(split: Split, seed: int) -> Predict:
    """The settings that were the default before."""
    settings: dict[str, Any] = {
        "methods": FIRST_ORDER,
        "n_members": 5,
        "hidden_layer_sizes": (50, 50),
        "validation_fraction": 0.2,
        "batch_size": 32,
        "bins": False,
        "shrink_variance": False,
    }
    return fit_fisher8(split, seed, **settings)


def fit_hist_gradient_boosting(split: Split, seed: int) -> Predict:
    """Trees for the mean, and trees for the squared residuals of other folds."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict

    shift, scale = units_of(split)
    inputs, targets = split.train_inputs, (split.train_targets - shift) / scale
    mean = HistGradientBoostingRegressor(random_state=seed)
    folds = KFold(5, shuffle=True, random_state=seed)
    squares = (targets - cross_val_predict(mean, inputs, targets, cv=folds)) ** 2
    size = squares.mean()
    # The deviance of the gamma family is the Gaussian NLL of a variance.
    variance = HistGradientBoostingRegressor(loss="gamma", random_state=seed)
    variance.fit(inputs, np.maximum(squares / size, 1e-6))
    mean.fit(inputs, targets)

    def predict(inputs: np.ndarray) -> Predictive:
        relative = np.maximum(variance.predict(inputs), SMALLEST_VARIANCE)
        return gaussian(mean.predict(inputs), size * relative)

    return predict


def fit_catboost(split: Split, seed: int) -> Predict:
    """Mean and variance by one loss; a held-out fifth says how many trees, then all rows train."""
    from catboost import CatBoostRegressor

    shift, scale = units_of(split)
    inputs, targets = split.train_inputs, (split.train_targets - shift) / scale
    held_out, others = _held_out_fifth(len(targets), seed)
    settings: dict[str, Any] = {
        "loss_function": "RMSEWithUncertainty",
        "random_seed": seed,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    }
    judged = (inputs[held_out], targets[held_out])
    first = CatBoostRegressor(**settings)
    first.fit(inputs[others], targets[others], eval_set=judged, early_stopping_rounds=50)
    model = CatBoostRegressor(iterations=max(1, first.tree_count_), **settings)
    model.fit(inputs, targets)

    def predict(inputs: np.ndarray) -> Predictive:
        mean, variance = model.predict(inputs).T
        return gaussian(mean, variance)

    return predict


def fit_ngboost(split: Split, seed: int) -> Predict:
    """NGBoost with its defaults, 500 rounds; a held-out fifth says how many of them to use."""
    from ngboost import NGBRegressor

    shift, scale = units_of(split)
    inputs, targets = split.train_inputs, (split.train_targets - shift) / scale
    held_out, others = _held_out_fifth(len(targets), seed)
    model = NGBRegressor(random_state=seed, verbose=False)
    model.fit(
        inputs[others],
        targets[others],
        X_val=inputs[held_out],
        Y_val=targets[held_out],
        early_stopping_rounds=50,
    )

    def predict(inputs: np.ndarray) -> Predictive:
        dist = model.pred_dist(inputs)
        return gaussian(dist.loc, dist.scale**2)

    return predict


def _held_out_fifth(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows // 5], order[rows // 5 :]


def gaussian(mean: np.ndarray, variance: np.ndarray) -> Gaussian:
    return Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(np.log(variance), jnp.float32))


FIT: dict[str, Fit] = {
    "hist_gradient_boosting": fit_hist_gradient_boosting,
    "catboost": fit_catboost,
    "fisher8": fit_fisher8,
    "deep_ensemble": fit_deep_ensemble,
    "first_order": fit_first_order,
    "ngboost": fit_ngboost,
    "fisher8_best": functools.partial(fit_fisher8, effort="best"),
    "plain_mixture": fit_plain_mixture,
    "shrunk_ensemble": fit_shrunk_ensemble,
}
