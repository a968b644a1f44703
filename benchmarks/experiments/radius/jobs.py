"""One job of the benchmark of the KL radius: an experiment on a set, all splits as runs."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.radius.plan import AVERAGE_EPOCHS, CAP_MAX_KL, HELD_OUT, RadiusJob
from benchmarks.experiments.uci.jobs import (
    Prepared,
    draw_runs,
    draw_schedule,
    load_prepared,
    score_runs,
)
from benchmarks.experiments.uci.plan import BATCH, BUDGETS
from benchmarks.machinery.baselines import BASELINES
from benchmarks.machinery.loop import Schedule, TrainState, start, train
from benchmarks.machinery.networks import Mlp, Params
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Run
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import Setup
from benchmarks.machinery.workers import Report
from fisher8_jax.optimizers import (
    fisher8_optimizer,
    scale_by_kl_radius,
    track_average,
)

Scores = dict[str, np.ndarray]


class HeldOut(NamedTuple):
    """Rows of every split's training part that are not trained on, padded."""

    rows: np.ndarray
    mask: np.ndarray


def run_job(job: RadiusJob, report: Report) -> None:
    """Trains, scores and writes the cells of a job."""
    runner = {"steps": _run_steps, "cap": _run_cap}.get(job.experiment, _run_epochs)
    store = Store(job.results)
    for variant, scores in runner(job, load_prepared(job.data), report).items():
        store.write(
            job.cell(variant),
            spec=job.spec(variant),
            result=scores,
            provenance=provenance(job.command),
        )


# Functions of the module, so that all sets share one compiled program.
def _ready_optimizer(learning_rate: Array) -> optax.GradientTransformation:
    del learning_rate
    return fisher8_optimizer(BUDGETS["sgd"].steps or 0)


def _capped_optimizer(learning_rate: Array) -> optax.GradientTransformation:
    steps = BUDGETS["sgd"].steps or 0
    radius = optax.polynomial_schedule(CAP_MAX_KL, 0.0, power=2, transition_steps=steps)
    return optax.chain(optax.sgd(learning_rate), scale_by_kl_radius(radius, mode="cap"))


def _run_steps(job: RadiusJob, prepared: Prepared, report: Report) -> dict[str, Scores]:
    return {"last": _train_at_once(job, _recipe(_ready_optimizer), prepared, report)}


def _run_cap(job: RadiusJob, prepared: Prepared, report: Report) -> dict[str, Scores]:
    scores = _train_at_once(job, _recipe(_capped_optimizer), prepared, report)
    runs = len(job.variants)
    return {
        variant: {name: values[index::runs] for name, values in scores.items()}
        for index, variant in enumerate(job.variants)
    }


def _run_epochs(job: RadiusJob, prepared: Prepared, report: Report) -> dict[str, Scores]:
    """Epoch by epoch, with the averaged parameters, and if held-out rows exist the best ones."""
    held_out = _draw_held_out(job, prepared) if job.experiment == "held_out" else None
    schedule = _draw_schedule(job, prepared, held_out)
    steps, per_epoch = _number_of_steps(schedule), int(np.flatnonzero(schedule.new_epoch)[1])

    def optimizer(_: Array) -> optax.GradientTransformation:
        return optax.chain(fisher8_optimizer(steps), track_average(AVERAGE_EPOCHS * per_epoch))

    setup = _recipe(optimizer)
    state, runs = _start(job, setup, prepared)
    best = _start_best(state, prepared) if held_out else {}
    for first in range(0, steps, per_epoch):
        chunk, length = schedule.chunk(first, per_epoch)
        state, _ = train(setup.task, state, prepared.train, runs, chunk, length)
        if held_out:
            best = _keep_best(setup, best, _candidates(state), held_out, prepared.train)
        jax.block_until_ready(state.step)
        report(length * len(runs.key))
    variants = _candidates(state)
    variants |= {_name_of_best(name): kept.params for name, kept in best.items()}
    return {
        name: score_runs(setup.predict, params, runs.dataset, prepared)
        for name, params in variants.items()
    }


def _name_of_best(name: str) -> str:
    return "best" if name == "last" else f"best_{name}"


def _train_at_once(job: RadiusJob, setup: Setup, prepared: Prepared, report: Report) -> Scores:
    schedule = draw_schedule(job.uci_job(), prepared)
    state, runs = _start(job, setup, prepared)
    state, _ = train(setup.task, state, prepared.train, runs, schedule)
    jax.block_until_ready(state.step)
    report(_number_of_steps(schedule) * len(runs.key))
    return score_runs(setup.predict, state.params, runs.dataset, prepared)


def _number_of_steps(schedule: Schedule) -> int:
    return np.shape(schedule.rows)[0]


def _recipe(optimizer: Any) -> Setup:
    return Setup(Mlp(hidden=(50, 50), activation=jax.nn.elu), BASELINES["fisher8"], optimizer)


def _start(job: RadiusJob, setup: Setup, prepared: Prepared) -> tuple[TrainState, Run]:
    params, runs = draw_runs(job.uci_job(), setup, prepared.features)
    return start(setup.task, params, None, runs, prepared.train), runs


def _candidates(state: TrainState) -> dict[str, Any]:
    average = optax.tree_utils.tree_get(state.optimizer, "average")
    return {"last": state.params, "average": average}


def _draw_held_out(job: RadiusJob, prepared: Prepared) -> HeldOut:
    """A random tenth of every split's training rows."""
    counts = [round(HELD_OUT * rows) for rows in prepared.train_rows]
    rows = np.zeros((len(counts), max(counts)), np.int32)
    for fold, count in enumerate(counts):
        rng = generator("radius", job.dataset, fold, job.seed, "held out")
        rows[fold, :count] = rng.permutation(prepared.train_rows[fold])[:count]
    return HeldOut(rows, np.arange(max(counts)) < np.array(counts)[:, None])


def _draw_schedule(job: RadiusJob, prepared: Prepared, held_out: HeldOut | None) -> Schedule:
    """The batches of the UCI tables, or batches from the rows that are not held out."""
    if held_out is None:
        return draw_schedule(job.uci_job(), prepared)
    kept = [
        np.setdiff1d(np.arange(rows), held_out.rows[fold][held_out.mask[fold]])
        for fold, rows in enumerate(prepared.train_rows)
    ]
    fewest = min(len(rows) for rows in kept)
    steps = (BUDGETS["adam"].epochs or 0) * (fewest // BATCH)
    drawn = []
    for fold, rows in enumerate(kept):
        rng = generator("radius", job.dataset, fold, job.seed, "batches")
        order, new_epoch = shuffled_rows(rng, fewest, batch=BATCH, steps=steps)
        drawn.append(rng.permutation(rows)[order])
    return Schedule(np.stack(drawn, axis=1), new_epoch, np.ones(steps, np.float32))


class Best(NamedTuple):
    """The parameters with the lowest held-out NLL so far, and that NLL."""

    params: Params
    nll: Array


def _start_best(state: TrainState, prepared: Prepared) -> dict[str, Any]:
    # Copies, because the training loop gives the memory of its state away.
    copy = jax.tree.map(jnp.array, state.params)
    infinite = jnp.full(len(jax.tree.leaves(copy)[0]), jnp.inf, jnp.float32)
    return {name: Best(copy, infinite) for name in _candidates(state)}


@functools.partial(jax.jit, static_argnums=0)
def _keep_best(setup, best, candidates, held_out, datasets):
    def of_run(best, params, source, rows, mask):
        dist, _ = setup.predict(params, None, datasets.inputs[source, rows])
        values = dist.nll(datasets.targets[source, rows])
        nll = jnp.sum(jnp.where(mask, values, 0)) / jnp.sum(mask)
        is_better = nll < best.nll
        kept = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), params, best.params)
        return Best(kept, jnp.where(is_better, nll, best.nll))

    splits = jnp.arange(len(held_out.rows))
    over_runs = jax.vmap(of_run)
    return {
        name: over_runs(best[name], params, splits, held_out.rows, held_out.mask)
        for name, params in candidates.items()
    }
