"""What happens in a worker: one method on one set, all settings, splits and learning rates."""

import functools
from typing import Any

import jax
import numpy as np
import optax

from benchmarks.experiments.sweeps.plan import BATCH, HELD_OUT, LAYERS, STEPS, Job
from benchmarks.experiments.uci.jobs import Prepared, draw_runs, load_prepared, score_runs
from benchmarks.machinery.baselines import Baseline
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.posthoc import PostHoc
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Apply
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import Setup
from benchmarks.machinery.workers import Report
from fisher8_jax.metrics import nll

# All sets are padded to so many training rows, so that they share programs.
ROWS = 1024


def run_job(job: Job, report: Report) -> None:
    """Trains and scores every setting and writes the cell."""
    prepared = load_prepared(job.data)
    result: dict[str, Any] = {}
    for name, baseline in job.settings.items():
        found = sweep_setting(job, prepared, baseline, LAYERS.get(name))
        for key, values in found.items():
            result.setdefault(key, []).append(values)
        report(1)
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)


def sweep_setting(
    job: Job, prepared: Prepared, baseline: Baseline, layers: tuple[int, ...] | None
) -> dict[str, list]:
    """Scores of one setting, (splits, rates) each."""
    network = Mlp((50, 50), jax.nn.elu, outputs=HEADS[baseline.head].outputs)
    setup = Setup(network, baseline, optax.adam)
    params, runs = draw_runs(job, setup, prepared.features)
    data = Datasets(*(leaf[:, :ROWS] for leaf in prepared.train))
    kept, held = split_rows(job, prepared)
    state = start(setup.task, params, None, runs, data)
    state, _ = train(setup.task, state, data, runs, _schedule(job, kept))
    apply: Apply = setup.predict
    params = state.params
    if layers is not None:
        apply = posthoc = PostHoc(network, layers)
        params = (params, _fit_posthoc(posthoc, params, runs.dataset, data, held))
    scores = score_runs(apply, params, runs.dataset, prepared)
    scores["held_out_nll"] = _held_out_nll(apply, params, runs.dataset, data, held)
    return {
        name: np.asarray(values, float).reshape(-1, len(job.rates)).tolist()
        for name, values in scores.items()
    }


def split_rows(job: Job, prepared: Prepared) -> tuple[list[np.ndarray], np.ndarray]:
    """Of every split: the numbers of the rows to train on, and which rows are held out."""
    kept, held = [], np.zeros((len(prepared.train_rows), ROWS), bool)
    for fold, rows in enumerate(prepared.train_rows):
        order = generator("sweeps", job.dataset, fold, job.seed, "held").permutation(rows)
        number = round(HELD_OUT * rows)
        held[fold, order[:number]] = True
        kept.append(order[number:])
    return kept, held


def _schedule(job: Job, kept: list[np.ndarray]) -> Schedule:
    """The batches of every split, the same for all methods; the rate falls along a cosine."""
    drawn = []
    for fold, rows in enumerate(kept):
        rng = generator("sweeps", job.dataset, fold, job.seed, "batches")
        places, new_epoch = shuffled_rows(rng, len(rows), batch=BATCH, steps=STEPS)
        drawn.append(rows[places].astype(np.int32))
    factor = 0.5 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS))
    return Schedule(np.stack(drawn, axis=1), new_epoch, factor.astype(np.float32))


@functools.partial(jax.jit, static_argnums=0)
def _fit_posthoc(posthoc, params, source, data, held):
    def of_run(params, index):
        return posthoc.fit(params, data.inputs[index], data.targets[index], held[index])

    return jax.vmap(of_run)(params, source)


@functools.partial(jax.jit, static_argnums=0)
def _held_out_nll(apply, params, source, data, held):
    def of_run(params, index):
        dist, _ = apply(params, None, data.inputs[index])
        return nll(dist, data.targets[index], where=held[index], constant=False)

    return jax.vmap(of_run)(params, source)
