"""The models: each returns predictions at new rows in units of standardised targets."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.gaps import networks
from benchmarks.experiments.gaps.networks import Rows, predict_one
from benchmarks.experiments.tables.models import (
    fit_deep_ensemble,
    fit_fisher8,
    fit_hist_gradient_boosting,
    fit_ngboost,
)
from benchmarks.experiments.uci.data import Split
from fisher8_jax import Gaussian
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Predictive
from fisher8_jax.posterior import (
    Posterior,
    PosteriorPredictive,
    fit_posterior,
    train_by_evidence,
)

MEMBERS = 5
SAMPLES = 50

# Chosen by the NLL of the sets that are not in `plan.UNSEEN`, among 0.01, 0.03, 0.1, 0.3 and 1.
MAX_KL = 0.1

LAST_LAYER = "last_layer"
# The form of the posterior by the group of models whose costs are stored.
FORMS = {"networks": "auto", "last_layer": LAST_LAYER}

Predictions = dict[str, Predictive]


class Scaled(NamedTuple):
    """A split in standard units."""

    train: Rows
    test: np.ndarray


def scaled(split: Split) -> Scaled:
    """Inputs and targets by the mean and standard deviation of the training part."""
    shift, scale = split.train_inputs.mean(0), split.train_inputs.std(0)
    scale = np.where(scale == 0, 1, scale)
    train, test = (
        ((x - shift) / scale).astype(np.float32) for x in (split.train_inputs, split.test_inputs)
    )
    targets = (split.train_targets - split.train_targets.mean()) / (
        split.train_targets.std() or 1.0
    )
    return Scaled(Rows(train, targets.astype(np.float32)), test)


def predict_networks(split: Split, seed: int) -> Predictions:
    """Networks that stopped early, and their posteriors.

    `moved` is the first again, moved towards the optimum of all rows.
    """
    (train, test), plain, wide = scaled(split), [], []
    for member in range(MEMBERS):
        params = networks.train_natural(train, seed + member)
        plain.append(networks.predict(params, test))
        posterior = fit_posterior(predict_one, params, *train)
        wide.append(_widened(posterior, test))
        if member == 0:
            moved = _widened(posterior, test, MAX_KL)
    return {
        "one": plain[0],
        "five": Mixture(_stacked(plain)),
        "one_posterior": wide[0],
        "moved": moved,
        "five_posterior": Mixture(_joined([dist.members for dist in wide])),
    }


def predict_last_layer(split: Split, seed: int) -> Predictions:
    """The first network that stopped early, the last layer alone uncertain."""
    train, test = scaled(split)
    params = networks.train_natural(train, seed)
    posterior = fit_posterior(predict_one, params, *train, form=LAST_LAYER)
    return {"last_layer": _widened(posterior, test)}


def costs(split: Split, seed: int, form: str) -> dict[str, float]:
    """Processor seconds of a training and of its posterior, both compiled before."""
    (train, _), seconds = scaled(split), {}
    began = time.process_time()
    params = jax.block_until_ready(networks.train_natural(train, seed))
    seconds["training"] = time.process_time() - began
    began = time.process_time()
    fit_posterior(predict_one, params, *train, form=form)
    seconds["posterior"] = time.process_time() - began
    return seconds


def predict_evidence(split: Split, seed: int) -> Predictions:
    """One network by evidence, all rows in training, and its posterior."""
    train, test = scaled(split)
    start = networks.init(seed, test.shape[1])
    trained = train_by_evidence(predict_one, start, *train, seed=seed)
    posterior = fit_posterior(predict_one, trained.params, *train, prior=trained.prior, tune=False)
    return {"evidence": _widened(posterior, test)}


def predict_estimator(split: Split, seed: int) -> Predictions:
    """The estimator with its defaults."""
    return {"estimator": fit_fisher8(split, seed)(split.test_inputs)}


def predict_deep_ensemble(split: Split, seed: int) -> Predictions:
    """The networks of the estimator, by Adam, as a plain mixture without posterior."""
    return {"deep_ensemble": fit_deep_ensemble(split, seed)(split.test_inputs)}


def predict_dropout(split: Split, seed: int) -> Predictions:
    """MC dropout on mean and log-variance."""
    train, test = scaled(split)
    params = networks.train_dropout(train, seed)
    drawn = networks.predict_by_dropout(params, test, jax.random.key(seed), SAMPLES)
    return {"dropout": Mixture(drawn)}


def predict_gp(split: Split, seed: int) -> Predictions:
    """A Gaussian process with a length for every input and noise, by its marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    train, test = scaled(split)
    kernel = ConstantKernel() * RBF(np.ones(test.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=seed)
    model.fit(np.float64(train.inputs), np.float64(train.targets))
    mean, std = model.predict(np.float64(test), return_std=True)
    return {"gp": _gaussian(mean, std)}


def predict_hgb(split: Split, seed: int) -> Predictions:
    """Boosted trees for the mean, and for the squared residuals of other folds."""
    return {"hgb": fit_hist_gradient_boosting(split, seed)(split.test_inputs)}


def predict_ngboost(split: Split, seed: int) -> Predictions:
    """NGBoost with its defaults."""
    return {"ngboost": fit_ngboost(split, seed)(split.test_inputs)}


def _widened(posterior: Posterior, inputs: np.ndarray, max_kl: float | None = None) -> Mixture:
    predicted = posterior.predict(inputs, max_kl=max_kl)
    assert isinstance(predicted, PosteriorPredictive)
    assert isinstance(predicted.dist, Mixture)
    return predicted.dist


def _stacked(members: list) -> Gaussian:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def _joined(mixtures: list) -> Gaussian:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *mixtures)


def _gaussian(mean: np.ndarray, std: np.ndarray) -> Gaussian:
    return Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(2 * np.log(std), jnp.float32))


PREDICT: dict[str, Callable[[Split, int], Predictions]] = {
    "networks": predict_networks,
    "last_layer": predict_last_layer,
    "evidence": predict_evidence,
    "estimator": predict_estimator,
    "deep_ensemble": predict_deep_ensemble,
    "dropout": predict_dropout,
    "gp": predict_gp,
    "hgb": predict_hgb,
    "ngboost": predict_ngboost,
}
