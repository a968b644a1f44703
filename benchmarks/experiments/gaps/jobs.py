"""What happens in a worker: a group of models is fitted and scored on splits of one set."""

import math
import time

import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.gaps.data import splits_for
from benchmarks.experiments.gaps.models import FORMS, PREDICT, costs
from benchmarks.experiments.gaps.plan import Job
from benchmarks.experiments.tables import data
from benchmarks.experiments.tables.jobs import versions
from benchmarks.experiments.tables.models import units_of
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.families import Predictive

LEVEL = 0.9


def run_job(job: Job, report: Report) -> None:
    """Scores the splits that are missing and writes the cell after each of them."""
    store, splits = Store(job.results), data.load(job.data)
    result = store.read(job.cell, job.spec) or {"splits": []}
    origin = provenance(job.command) | {"models": versions()}
    done = list(result["splits"])
    for number in range(len(done), job.splits):
        split = splits_for(job.kind, splits, number)
        seed = seed_of("gaps", job.dataset, job.kind, number, job.seed) & 0x7FFFFFF
        began = time.process_time()
        predictions = PREDICT[job.group](split, seed)
        seconds = time.process_time() - began
        scores = {name: scores_of(dist, split) for name, dist in predictions.items()}
        done.append({"scores": scores, "seconds": seconds})
        if job.kind == "random" and job.group in FORMS:
            done[-1]["costs"] = costs(split, seed, FORMS[job.group])
        whole = {"splits": done, "machine": machine()}
        store.write(job.cell, spec=job.spec, result=whole, provenance=origin)
        report(1)


def scores_of(dist: Predictive, split: Split) -> dict[str, float]:
    """In the units of the data; the NLL with its constant."""
    shift, scale = units_of(split)
    targets = jnp.asarray((split.test_targets - shift) / scale, jnp.float32)
    cdf = np.asarray(dist.cdf(targets))
    inside = (cdf > (1 - LEVEL) / 2) & (cdf < (1 + LEVEL) / 2)
    return {
        "rmse": float(np.sqrt(np.mean((np.asarray(dist.mean) - targets) ** 2))) * scale,
        "nll": float(np.mean(dist.nll(targets))) + math.log(scale),
        "crps": float(np.mean(dist.crps(targets))) * scale,
        "coverage": float(np.mean(inside)),
    }
