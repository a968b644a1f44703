"""What happens in a worker: one model is fitted and scored on some splits of a set."""

import functools
import importlib.metadata
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.tables import data, models
from benchmarks.experiments.tables.models import Predict, units_of
from benchmarks.experiments.tables.outside.ask import ask
from benchmarks.experiments.tables.plan import OUTSIDE, PUBLISHED, Job, TimesJob
from benchmarks.experiments.tables.predictions import (
    distribution,
    gaussian_nll_of,
    quantile_scores,
)
from benchmarks.experiments.tables.searched import SEARCHED
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import evaluate
from fisher8_jax.families import Predictive
from fisher8_jax.metrics import Evaluation

FIT = models.FIT | SEARCHED
LEVEL = 0.9
SCORES = ("rmse", "nll", "crps", "ece", "coverage", "width", "non_finite")
IN_UNITS = ("rmse", "crps", "width")  # of the targets

# Test rows are padded to one of few numbers, so that few programs are compiled.
_SMALLEST_TEST = 512


def run_job(job: Job, report: Report) -> None:
    """Fits and scores the splits that are missing and writes the cell after each of them."""
    store, splits = Store(job.results), data.load(job.data)
    result = store.read(job.cell, job.spec) or {"rmse": []}
    origin = provenance(job.command)
    for fold in range(len(result["rmse"]), job.splits):
        row, origin["models"] = score(job, splits[fold], fold)
        # A score that older splits lack is null there.
        result = {name: [*result.get(name, [None] * fold), value] for name, value in row.items()}
        whole = result | {"machine": machine()}
        store.write(job.cell, spec=job.spec, result=whole, provenance=origin)
        report(1)


def run_times_job(job: TimesJob, report: Report) -> None:
    """A first fit, compiled from nothing, and a second one on other rows."""
    splits = data.load(job.data)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    seconds = []
    for fold in range(2):
        began = time.process_time()
        FIT[job.model](splits[fold], _seed(job.dataset, fold, job.seed))
        seconds.append(time.process_time() - began)
        report(0.5)
    result = {"cold": seconds[0], "warm": seconds[1], "machine": machine()}
    origin = provenance(job.command) | {"models": versions()}
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)


def score(job: Job, split: Split, fold: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The scores of one model on one split with its processor times, and the versions used."""
    seed = _seed(job.dataset, fold, job.seed)
    if job.model in OUTSIDE:
        return _score_outside(job, split, seed)
    seconds = [time.process_time()]
    fitted = FIT[job.model](split, seed)
    seconds.append(time.process_time())

    def predict(inputs: np.ndarray) -> Predictive:
        dist = jax.block_until_ready(fitted(inputs))
        seconds.append(time.process_time())
        return dist

    row: dict[str, Any] = scores_of(predict, split, published=job.dataset in PUBLISHED)
    row |= dict(zip(("fit_seconds", "predict_seconds"), np.diff(seconds).tolist(), strict=True))
    return row, versions()


def _score_outside(job: Job, split: Split, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The same of a model in its own environment; what it has no score for is null."""
    shift, scale = units_of(split)
    targets = (split.train_targets - shift) / scale
    predictions, facts, used = ask(job, split.train_inputs, targets, split.test_inputs, seed)
    row: dict[str, Any] = dict.fromkeys((*SCORES, "predict_seconds"))
    if predictions is not None and "quantiles" in predictions:
        standard = (split.test_targets - shift) / scale
        found = quantile_scores(predictions["quantiles"], predictions["levels"], standard)
        row |= {name: value * (scale if name in IN_UNITS else 1) for name, value in found.items()}
    elif predictions is not None:
        row |= scores_of(
            lambda inputs: distribution(predictions, len(inputs)),
            split,
            published=job.dataset in PUBLISHED,
        )
    return row | facts, used


def scores_of(predict: Predict, split: Split, *, published: bool = False) -> dict[str, float]:
    """All scores in the units of the data; the NLL with its constant.

    Args:
        predict: from inputs to distributions in standard units.
        split: with the rows that test.
        published: also the NLL of Gaussians with the same moments.
    """
    shift, scale = units_of(split)
    rows = len(split.test_targets)
    padded = max(_SMALLEST_TEST, 2 ** math.ceil(math.log2(rows)))
    # The last row is repeated; a mask leaves the copies out.
    places = np.minimum(np.arange(padded), rows - 1)
    targets = ((split.test_targets - shift) / scale)[places].astype(np.float32)
    where = jnp.asarray(np.arange(padded) < rows)
    dist = predict(split.test_inputs[places])
    found = _evaluate(dist, jnp.asarray(targets), where)
    moments = np.mean(gaussian_nll_of(dist, targets)[:rows]) if published else None
    return {
        "rmse": float(found.rmse) * scale,
        "nll": float(found.nll) + math.log(scale),
        "crps": float(found.crps) * scale,
        "ece": float(found.ece),
        "coverage": float(found.coverage[0]),
        "width": float(found.interval_width[0]) * scale,
        "non_finite": int(found.non_finite),
        **({} if moments is None else {"gaussian_nll": float(moments) + math.log(scale)}),
    }


@jax.jit
def _evaluate(dist: Predictive, targets: jax.Array, where: jax.Array) -> Evaluation:
    return evaluate(dist, targets, where=where, levels=(LEVEL,))


def _seed(dataset: str, fold: int, seed: int) -> int:
    return seed_of("tables", dataset, fold, seed) & 0x7FFFFFFF


@functools.cache
def versions() -> dict[str, str]:
    """Of the packages that are compared."""
    found = {}
    for name in ("scikit-learn", "catboost", "ngboost"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
