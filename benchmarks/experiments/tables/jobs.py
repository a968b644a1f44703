"""What happens in a worker: one model is fitted and scored on every split of a set.

Scores are those of the published tables: RMSE and the mean NLL without `ln(2 pi)/2`, both in the
units of the targets. Each model is used as its documentation recommends, with default settings.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks.experiments.tables.plan import MODELS, Job, TimesJob
from benchmarks.experiments.uci import data as uci_data
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Prediction(NamedTuple):
    """Means and NLLs with their constant, and more scores of a model's own."""

    mean: np.ndarray
    nll: np.ndarray
    extra: dict[str, Any]


Fit = Callable[[Split, int], Callable[[Split], Prediction]]


def run_job(job: Job, report: Report) -> None:
    """Fits and scores the splits that are missing and writes the cell after each of them."""
    store, splits = Store(job.results), uci_data.load(job.data)
    result = store.read(job.cell, job.spec) or {"rmse": []}
    origin = provenance(job.command) | {"models": _versions()}
    report(len(result["rmse"]))
    for fold in range(len(result["rmse"]), job.splits):
        seed = seed_of("estimator", job.dataset, fold, job.seed) & 0x7FFFFFFF
        row = score(FIT[job.model], splits[fold], seed)
        result = {name: [*result.get(name, []), value] for name, value in row.items()}
        whole = result | {"machine": machine()}
        store.write(job.cell, spec=job.spec, result=whole, provenance=origin)
        report(1)


def run_times_job(job: TimesJob, report: Report) -> None:
    """Two rounds of fits, on the first and on the second split; the first holds the compilation."""
    splits = uci_data.load(job.data)
    seconds: dict[str, list[float]] = {model: [] for model in MODELS}
    for fold in range(2):
        for model in MODELS:
            seed = seed_of("estimator", job.dataset, fold, job.seed) & 0x7FFFFFFF
            began = time.process_time()
            FIT[model](splits[fold], seed)
            seconds[model].append(time.process_time() - began)
            report(1 / (2 * len(MODELS)))
    result = {"processor_seconds": seconds, "machine": machine()}
    origin = provenance(job.command) | {"models": _versions()}
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)


def score(fit: Fit, split: Split, seed: int) -> dict[str, Any]:
    """The scores of one model on one split, and how long its fit took."""
    began = time.perf_counter()
    predict = fit(split, seed)
    fitted = time.perf_counter()
    prediction = predict(split)
    return {
        "rmse": math.sqrt(np.mean((prediction.mean - split.test_targets) ** 2)),
        "nll": float(np.mean(prediction.nll)) - HALF_LOG_2PI,
        "fit_seconds": fitted - began,
        **prediction.extra,
    }


def fit_fisher8(split: Split, seed: int) -> Callable[[Split], Prediction]:
    """The estimator of this package; also the scores of its single members."""
    from fisher8_jax.estimator import Fisher8Regressor

    model = Fisher8Regressor(random_state=seed).fit(split.train_inputs, split.train_targets)

    def predict(split: Split) -> Prediction:
        members = cast(Gaussian, model.predict_distribution(split.test_inputs).members)
        means = np.asarray(members.mean, np.float64)
        log_variances = np.asarray(members.log_variance, np.float64)
        z_sq = (split.test_targets - means) ** 2 * np.exp(-log_variances)
        of_members = 0.5 * (log_variances + z_sq)
        errors = np.sqrt(np.mean((means - split.test_targets) ** 2, axis=1))
        extra: dict[str, Any] = {"member_nll": of_members.mean(axis=1).tolist()}
        extra |= {"member_rmse": errors.tolist(), "steps": model.n_iter_}
        nll = model.nll(split.test_inputs, split.test_targets)
        return Prediction(model.predict(split.test_inputs), nll, extra)

    return predict


def fit_gradient_boosting(split: Split, seed: int) -> Callable[[Split], Prediction]:
    """scikit-learn's gradient boosting; one variance, that of residuals on a held-out fifth."""
    from sklearn.ensemble import GradientBoostingRegressor

    rows = np.random.default_rng(seed).permutation(len(split.train_targets))
    held_out, others = np.split(rows, [len(rows) // 5])
    inputs, targets = split.train_inputs, split.train_targets
    first = GradientBoostingRegressor(random_state=seed).fit(inputs[others], targets[others])
    variance = np.mean((first.predict(inputs[held_out]) - targets[held_out]) ** 2)
    model = GradientBoostingRegressor(random_state=seed).fit(inputs, targets)

    def predict(split: Split) -> Prediction:
        mean = model.predict(split.test_inputs)
        squares = (split.test_targets - mean) ** 2 / variance
        return Prediction(mean, 0.5 * (np.log(variance) + squares) + HALF_LOG_2PI, {})

    return predict


def fit_ngboost(split: Split, seed: int) -> Callable[[Split], Prediction]:
    """NGBoost with its defaults, 500 rounds; a held-out fifth says how many of them to use."""
    from ngboost import NGBRegressor

    rows = np.random.default_rng(seed).permutation(len(split.train_targets))
    held_out, others = np.split(rows, [len(rows) // 5])
    inputs, targets = split.train_inputs, split.train_targets
    model = NGBRegressor(random_state=seed, verbose=False)
    model.fit(
        inputs[others],
        targets[others],
        X_val=inputs[held_out],
        Y_val=targets[held_out],
        early_stopping_rounds=50,
    )

    def predict(split: Split) -> Prediction:
        dist = model.pred_dist(split.test_inputs)
        return Prediction(
            dist.loc, -dist.logpdf(split.test_targets), {"steps": int(model.best_val_loss_itr)}
        )

    return predict


FIT: dict[str, Fit] = {
    "fisher8": fit_fisher8,
    "gradient_boosting": fit_gradient_boosting,
    "ngboost": fit_ngboost,
}


def _versions() -> dict[str, str]:
    import importlib.metadata

    versions = {}
    for name in ("scikit-learn", "ngboost", "flax"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
