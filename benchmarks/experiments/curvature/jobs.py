"""The UCI jobs of the whole network: 100 published steps, and equal processor time."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.curvature.plan import (
    BATCH,
    DAMPING,
    HELD_OUT,
    LOOKS,
    STEPS,
    StepsJob,
    TimeJob,
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
    task = make_task("network", ELU, STEPS)
    lanes, params = _lanes(job.dataset, job.seed, (1.0,)), _params(job, ELU, prepared)
    rows = [_batches(job, fold, n, STEPS) for fold, n in enumerate(prepared.train_rows)]
    schedule = _schedule(rows, STEPS)
    state = start(task, params, None, lanes, prepared.train)
    state, _ = train(task, state, prepared.train, lanes, schedule)
    scores = score_lanes(task.apply, state.params, lanes.source, prepared)
    report(STEPS * SPLITS)
    _write(job, scores)


def run_time(job: TimeJob, report: Report) -> None:
    """One budget: choose rate and stopping point on held-out rows, then train on all rows."""
    prepared = load_prepared(job.data)
    task = make_task(job.method, SILU, job.steps)
    trial = _held_out_trial(job, task, prepared, report)
    result: dict = {"seconds_per_step": job.seconds, "stopped": trial.stopped(job.rates)}
    rate = 1.0
    if len(job.rates) > 1:
        last = trial.held_out[-1].mean(axis=0)
        rate = job.rates[int(np.argmin(last))]
        result |= {"rate": rate, "held_out_nll": np.where(np.isfinite(last), last, np.nan)}
    lanes, params = _lanes(job.dataset, job.seed, (rate,)), _params(job, SILU, prepared)
    rows = [_batches(job, fold, n, job.steps) for fold, n in enumerate(prepared.train_rows)]
    looks = []
    for state, steps in _train(task, job, params, lanes, prepared.train, rows):
        looks.append(score_lanes(task.apply, state.params, lanes.source, prepared))
        report(steps * SPLITS)
    curve = {f"{name}_over_time": [look[name].mean() for look in looks] for name in ("rmse", "nll")}
    steps_at_looks = [min((i + 1) * _chunk(job), job.steps) for i in range(len(looks))]
    _write(job, result | looks[-1] | curve | {"steps_at_looks": steps_at_looks})


class Trial(NamedTuple):
    """A training on all but the held-out rows; arrays of shape (looks, splits, rates)."""

    held_out: np.ndarray  # infinite where training diverged
    scores: dict[str, np.ndarray]

    def stopped(self, rates: tuple[float, ...]) -> dict:
        """Test scores at the look and the rate with the best held-out NLL, for every split."""
        best = self.held_out.argmin(axis=0)
        of_rates = self.held_out.min(axis=0).mean(axis=0)
        index = int(np.argmin(of_rates))
        looks, splits = best[:, index], np.arange(len(best))
        scores = {name: values[looks, splits, index] for name, values in self.scores.items()}
        return {"rate": rates[index], "looks": looks} | scores


def _held_out_trial(job: TimeJob, task: Task, prepared: Prepared, report: Report) -> Trial:
    """Trains with every rate on nine tenths of the rows and looks at the last tenth."""
    lanes = _lanes(job.dataset, job.seed, job.rates)
    first = jax.tree.map(
        lambda leaf: np.repeat(leaf, len(job.rates), axis=0), _params(job, SILU, prepared)
    )
    size = round(HELD_OUT * min(prepared.train_rows))
    orders = [
        generator("curvature", job.dataset, fold, job.seed, "held out").permutation(rows)
        for fold, rows in enumerate(prepared.train_rows)
    ]
    kept, held = [order[size:] for order in orders], np.stack([order[:size] for order in orders])
    rows = [rows[_batches(job, fold, len(rows), job.steps)] for fold, rows in enumerate(kept)]
    shape = (SPLITS, len(job.rates))
    held_out, scores = [], []
    for state, steps in _train(task, job, first, lanes, prepared.train, rows):
        values = np.asarray(_held_out(task, state.params, lanes.source, prepared.train, held))
        held_out.append(np.where(np.isfinite(values), values, np.inf).reshape(shape))
        scores.append(score_lanes(task.apply, state.params, lanes.source, prepared))
        report(steps * SPLITS * len(job.rates))
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


def _lanes(dataset: str, seed: int, rates: tuple[float, ...]) -> Lane:
    """Splits outermost, rates inside."""
    keys = [seed_of("uci", dataset, fold, seed, "key") & 0xFFFFFFFF for fold in range(SPLITS)]
    number = SPLITS * len(rates)
    settings = Settings(jnp.tile(jnp.array(rates, jnp.float32), SPLITS), jnp.full(number, DAMPING))
    return Lane(
        settings,
        jax.vmap(jax.random.key)(np.repeat(np.array(keys, np.uint32), len(rates))),
        jnp.repeat(jnp.arange(SPLITS, dtype=jnp.int32), len(rates)),
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
    lanes = _lanes(dataset, 0, (0.01,))
    return start(task, _params(job, network, prepared), None, lanes, prepared.train), lanes
