"""The UCI jobs of the whole network: 100 published steps, and equal processor time."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.curvature.plan import (
    AVERAGE,
    BATCH,
    DAMPING,
    HELD_OUT,
    LOOKS,
    METHODS,
    STEPS,
    StepsJob,
    TimeJob,
    is_network,
)
from benchmarks.experiments.curvature.training import ELU, SILU, Settings, make_task
from benchmarks.experiments.uci.jobs import PADDED_FEATURES, Prepared, load_prepared, score_lanes
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.networks import Mlp, Params
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.ensembles import stack_members
from fisher8_jax.training import (
    Lane,
    Schedule,
    Sources,
    Task,
    TrainState,
    shuffled_rows,
    start,
    train,
)


def run_steps(job: StepsJob, report: Report) -> None:
    """100 steps on all splits, with the batches and first parameters of the published tables."""
    prepared = load_prepared(job.data)
    task = make_task("network", ELU, STEPS, average=AVERAGE)
    lanes, params = _lanes(job), _params(job, ELU, prepared)
    rows = [_batches(job, fold, n, STEPS) for fold, n in enumerate(prepared.train_rows)]
    schedule = _schedule(rows, STEPS)
    state = start(task, params, None, lanes, prepared.train)
    state, _ = train(task, state, prepared.train, lanes, schedule)
    judged = task.judged(state.params, state.optimizer)
    scores = score_lanes(task.apply, judged, lanes.source, prepared)
    report(STEPS * SPLITS)
    _write(job, scores)


def run_time(job: TimeJob, report: Report) -> None:
    """One budget: choose on held-out rows rate or damping and when to stop; train on all rows."""
    prepared = load_prepared(job.data)
    task = make_task(job.method, SILU, job.steps, average=AVERAGE)
    trial = _held_out_trial(job, task, prepared, report)
    result: dict = {"seconds_per_step": job.seconds, "stopped": trial.stopped(job.choices)}
    chosen = job.choices[0]
    if len(job.choices) > 1:
        last = trial.held_out[-1].mean(axis=0)
        chosen = job.choices[int(np.argmin(last))]
        result |= {"chosen": chosen, "held_out_nll": np.where(np.isfinite(last), last, np.nan)}
    lanes, params = _lanes(job, (chosen,)), _params(job, SILU, prepared)
    rows = [_batches(job, fold, n, job.steps) for fold, n in enumerate(prepared.train_rows)]
    looks = []
    for state, steps in _train(task, job, params, lanes, prepared.train, rows):
        looks.append(score_lanes(task.apply, _judged(job, task, state), lanes.source, prepared))
        report(steps * SPLITS)
    average = task.judged(state.params, state.optimizer)
    result["averaged"] = score_lanes(task.apply, average, lanes.source, prepared)
    curve = {f"{name}_over_time": [look[name].mean() for look in looks] for name in ("rmse", "nll")}
    steps_at_looks = [min((i + 1) * _chunk(job), job.steps) for i in range(len(looks))]
    _write(job, result | looks[-1] | curve | {"steps_at_looks": steps_at_looks})


def _judged(job: TimeJob, task: Task, state: TrainState) -> Params:
    """The average is part of the whole network's recipe, and of no other method."""
    return task.judged(state.params, state.optimizer) if is_network(job.method) else state.params


class Trial(NamedTuple):
    """A training on all but the held-out rows; arrays of shape (looks, splits, choices)."""

    held_out: np.ndarray  # infinite where training diverged
    scores: dict[str, np.ndarray]

    def stopped(self, choices: tuple[float, ...]) -> dict:
        """Test scores at the look and the choice with the best held-out NLL, for every split."""
        best = self.held_out.argmin(axis=0)
        of_choices = self.held_out.min(axis=0).mean(axis=0)
        index = int(np.argmin(of_choices))
        looks, splits = best[:, index], np.arange(len(best))
        scores = {name: values[looks, splits, index] for name, values in self.scores.items()}
        return {"chosen": choices[index], "looks": looks} | scores


def _held_out_trial(job: TimeJob, task: Task, prepared: Prepared, report: Report) -> Trial:
    """Trains with every choice on nine tenths of the rows and looks at the last tenth."""
    number = len(job.choices)
    lanes = _lanes(job, job.choices)
    first = jax.tree.map(lambda leaf: np.repeat(leaf, number, axis=0), _params(job, SILU, prepared))
    size = round(HELD_OUT * min(prepared.train_rows))
    orders = [
        generator("curvature", job.dataset, fold, job.seed, "held out").permutation(rows)
        for fold, rows in enumerate(prepared.train_rows)
    ]
    kept, held = [order[size:] for order in orders], np.stack([order[:size] for order in orders])
    rows = [rows[_batches(job, fold, len(rows), job.steps)] for fold, rows in enumerate(kept)]
    shape = (SPLITS, number)
    held_out, scores = [], []
    for state, steps in _train(task, job, first, lanes, prepared.train, rows):
        judged = _judged(job, task, state)
        values = np.asarray(_held_out(task, judged, lanes.source, prepared.train, held))
        held_out.append(np.where(np.isfinite(values), values, np.inf).reshape(shape))
        scores.append(score_lanes(task.apply, judged, lanes.source, prepared))
        report(steps * SPLITS * number)
    stacked = {name: np.stack([s[name].reshape(shape) for s in scores]) for name in scores[0]}
    return Trial(np.stack(held_out), stacked)


def _train(task, job, params, lanes, sources, rows):
    """Chunk by chunk, so that the network can be looked at; yields the state and its steps."""
    state = start(task, params, None, lanes, sources)
    schedule = _schedule(rows, job.steps)
    for first in range(0, job.steps, _chunk(job)):
        chunk, steps = schedule.chunk(first, _chunk(job))
        state, _ = train(task, state, sources, lanes, chunk, steps)
        jax.block_until_ready(state.step)
        yield state, steps


def _chunk(job: TimeJob) -> int:
    return -(-job.steps // LOOKS)


def _schedule(rows: list[np.ndarray], steps: int) -> Schedule:
    decay = 1 - np.arange(steps) / steps
    return Schedule(np.stack(rows, axis=1), np.zeros(steps, bool), decay.astype(np.float32))


def _batches(job: StepsJob | TimeJob, fold: int, rows: int, steps: int) -> np.ndarray:
    rng = generator("uci", job.dataset, fold, job.seed, "batches")
    return shuffled_rows(rng, rows, batch=BATCH, steps=steps)[0]


def _params(job: StepsJob | TimeJob, network: Mlp, prepared: Prepared) -> Params:
    rngs = (generator("uci", job.dataset, fold, job.seed, "init") for fold in range(SPLITS))
    return stack_members([network.init(rng, prepared.features, PADDED_FEATURES) for rng in rngs])


def _lanes(job: StepsJob | TimeJob, choices: tuple[float, ...] = (1.0,)) -> Lane:
    """Splits outermost, choices inside."""
    dataset, seed, number = job.dataset, job.seed, len(choices)
    keys = [seed_of("uci", dataset, fold, seed, "key") & 0xFFFFFFFF for fold in range(SPLITS)]
    values = jnp.tile(jnp.array(choices, jnp.float32), SPLITS)
    if isinstance(job, TimeJob) and METHODS[job.method].dampings:
        settings = Settings(jnp.ones_like(values), values)
    else:
        settings = Settings(values, jnp.full_like(values, DAMPING))
    return Lane(
        settings,
        jax.vmap(jax.random.key)(np.repeat(np.array(keys, np.uint32), number)),
        jnp.repeat(jnp.arange(SPLITS, dtype=jnp.int32), number),
    )


@functools.partial(jax.jit, static_argnums=0)
def _held_out(
    task: Task, params: Params, source: Array, sources: Sources, rows: np.ndarray
) -> Array:
    def of_lane(params: Params, index: Array) -> Array:
        mine = jnp.asarray(rows)[index]
        dist, _ = task.apply(params, None, sources.inputs[index, mine])
        return dist.nll(sources.targets[index, mine]).mean()

    return jax.vmap(of_lane)(params, source)


def _write(job: StepsJob | TimeJob, result: dict) -> None:
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


def state_of(task: Task, network: Mlp, prepared: Prepared, dataset: str) -> tuple[TrainState, Lane]:
    """A training before its first step, for measurements of cost."""
    job = StepsJob(dataset, 0, None, None)  # type: ignore[arg-type]
    lanes = _lanes(job, (0.01,))
    return start(task, _params(job, network, prepared), None, lanes, prepared.train), lanes
