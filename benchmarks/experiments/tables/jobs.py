"""What happens in a worker: one model is fitted and scored on some splits of a set."""

import functools
import importlib.metadata
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.tables import data
from benchmarks.experiments.tables.models import FIT, Predict, units_of
from benchmarks.experiments.tables.plan import Job, TimesJob
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import evaluate
from fisher8_jax.families import Predictive
from fisher8_jax.metrics import Evaluation

LEVEL = 0.9

# Test rows are padded to one of few numbers, so that few programs are compiled.
_SMALLEST_TEST = 512


def run_job(job: Job, report: Report) -> None:
    """Fits and scores the splits that are missing and writes the cell after each of them."""
    store, splits = Store(job.results), data.load(job.data)
    result = store.read(job.cell, job.spec) or {"rmse": []}
    origin = provenance(job.command) | {"models": versions()}
    for fold in range(len(result["rmse"]), job.splits):
        row = score(job, splits[fold], fold)
        result = {name: [*result.get(name, []), value] for name, value in row.items()}
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


def score(job: Job, split: Split, fold: int) -> dict[str, Any]:
    """The scores of one model on one split, and the processor time of its fit."""
    began = time.process_time()
    predict = FIT[job.model](split, _seed(job.dataset, fold, job.seed))
    seconds = time.process_time() - began
    return scores_of(predict, split) | {"fit_seconds": seconds}


def scores_of(predict: Predict, split: Split) -> dict[str, float]:
    """All scores in the units of the data; the NLL with its constant."""
    shift, scale = units_of(split)
    rows = len(split.test_targets)
    padded = max(_SMALLEST_TEST, 2 ** math.ceil(math.log2(rows)))
    # The last row is repeated; a mask leaves the copies out.
    places = np.minimum(np.arange(padded), rows - 1)
    targets = ((split.test_targets - shift) / scale)[places].astype(np.float32)
    where = jnp.asarray(np.arange(padded) < rows)
    found = _evaluate(predict(split.test_inputs[places]), jnp.asarray(targets), where)
    return {
        "rmse": float(found.rmse) * scale,
        "nll": float(found.nll) + math.log(scale),
        "crps": float(found.crps) * scale,
        "ece": float(found.ece),
        "coverage": float(found.coverage[0]),
        "width": float(found.interval_width[0]) * scale,
        "non_finite": int(found.non_finite),
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
