"""The UCI jobs of the natural gradient: 100 published steps, and equal processor time."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.curvature.plan import (
    AVERAGE,
    BATCH,
    DAMPING,
    ENDS,
    HELD_OUT,
    LOOKS,
    METHODS,
    STEPS,
    StepsJob,
    TimeJob,
)
from benchmarks.experiments.curvature.training import ELU, SILU, Settings, make_task
from benchmarks.experiments.uci.jobs import PADDED_FEATURES, Prepared, load_prepared, score_runs
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.loop import Datasets, Schedule, TrainState, start, train
from benchmarks.machinery.networks import Mlp, Params, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Run, Task
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report


def run_steps(job: StepsJob, report: Report) -> None:
    """100 steps on all splits, with the batches and first parameters of the published tables."""
    prepared = load_prepared(job.data)
    task = make_task("network", ELU, STEPS)
    runs, params = _runs(job), _params(job, ELU, prepared)
    rows = [_batches(job, fold, n, STEPS) for fold, n in enumerate(prepared.train_rows)]
    schedule = _schedule(rows, STEPS)
    state = start(task, params, None, runs, prepared.train)
    state, _ = train(task, state, prepared.train, runs, schedule)
    scores = score_runs(task.apply, state.params, runs.dataset, prepared)
    report(STEPS * SPLITS)
    _write(job, scores)


class Candidate(NamedTuple):
    """What held-out rows choose from: a rate or a damping, and last or averaged parameters."""

    value: float
    parameters: str


def run_time(job: TimeJob, report: Report) -> None:
    """One budget: choose on held-out rows, also when to stop; then train on all rows."""
    prepared = load_prepared(job.data)
    task = make_task(job.method, SILU, job.steps, average=AVERAGE)
    trial = _held_out_trial(job, task, prepared, report)
    chosen = trial.best_at_end(job.ends)
    runs, params = _runs(job, (chosen.value,)), _params(job, SILU, prepared)
    rows = [_batches(job, fold, n, job.steps) for fold, n in enumerate(prepared.train_rows)]
    looks = []
    for state, steps in _train(task, job, params, runs, prepared.train, rows):
        looks.append(_score_ends(task, state, runs, prepared))
        report(steps * SPLITS)
    seen = [look[chosen.parameters] for look in looks]
    either = trial.best_at_end(ENDS, chosen.value)
    result: dict = {"seconds_per_step": job.seconds, "chosen": chosen._asdict()}
    result |= {"stopped": trial.stopped(job.ends), "either": looks[-1][either.parameters]}
    result |= looks[-1] | seen[-1]
    result |= {f"{name}_over_time": [x[name].mean() for x in seen] for name in ("rmse", "nll")}
    steps_at_looks = [min((i + 1) * _chunk(job), job.steps) for i in range(len(looks))]
    _write(job, result | {"steps_at_looks": steps_at_looks})


def _ends(task: Task, state: TrainState) -> dict[str, Params]:
    """The last parameters and their average, in the order of ENDS."""
    return dict(zip(ENDS, (state.params, state.kept), strict=True))


def _score_ends(task: Task, state: TrainState, runs: Run, prepared: Prepared) -> dict[str, dict]:
    """Test scores of both."""
    return {
        end: score_runs(task.apply, params, runs.dataset, prepared)
        for end, params in _ends(task, state).items()
    }


class Trial(NamedTuple):
    """A training on all but the held-out rows; arrays of shape (looks, splits, candidates)."""

    candidates: list[Candidate]
    held_out: np.ndarray  # infinite where training diverged
    scores: dict[str, np.ndarray]

    def best_at_end(self, ends: tuple[str, ...], value: float | None = None) -> Candidate:
        """The candidate with the best mean held-out NLL, among some ends and maybe one value."""
        nll = self.held_out[-1].mean(axis=0)
        allowed = [
            index
            for index, candidate in enumerate(self.candidates)
            if candidate.parameters in ends and value in (None, candidate.value)
        ]
        return self.candidates[min(allowed, key=lambda index: nll[index])]

    def stopped(self, ends: tuple[str, ...]) -> dict:
        """Test scores at the look and the candidate with the best held-out NLL, for every split."""
        best = self.held_out.argmin(axis=0)
        means = self.held_out.min(axis=0).mean(axis=0)
        allowed = [i for i, candidate in enumerate(self.candidates) if candidate.parameters in ends]
        index = min(allowed, key=lambda i: means[i])
        looks, splits = best[:, index], np.arange(len(best))
        scores = {name: values[looks, splits, index] for name, values in self.scores.items()}
        return {"chosen": self.candidates[index]._asdict(), "looks": looks} | scores


def _held_out_trial(job: TimeJob, task: Task, prepared: Prepared, report: Report) -> Trial:
    """Trains with every choice on nine tenths of the rows and looks at the last tenth."""
    number = len(job.choices)
    runs = _runs(job, job.choices)
    first = jax.tree.map(lambda leaf: np.repeat(leaf, number, axis=0), _params(job, SILU, prepared))
    size = round(HELD_OUT * min(prepared.train_rows))
    orders = [
        generator("curvature", job.dataset, fold, job.seed, "held out").permutation(rows)
        for fold, rows in enumerate(prepared.train_rows)
    ]
    kept, held = [order[size:] for order in orders], np.stack([order[:size] for order in orders])
    rows = [rows[_batches(job, fold, len(rows), job.steps)] for fold, rows in enumerate(kept)]

    def arrange(ends: list[np.ndarray]) -> np.ndarray:
        """From an array of runs for each end to (splits, candidates)."""
        return np.stack([x.reshape(SPLITS, number) for x in ends], -1).reshape(SPLITS, -1)

    held_out, scores = [], []
    for state, steps in _train(task, job, first, runs, prepared.train, rows):
        values = arrange(
            [
                np.asarray(_held_out(task, params, runs.dataset, prepared.train, held))
                for params in _ends(task, state).values()
            ]
        )
        held_out.append(np.where(np.isfinite(values), values, np.inf))
        scores.append(_score_ends(task, state, runs, prepared))
        report(steps * SPLITS * number)
    names = scores[0][ENDS[0]]
    stacked = {n: np.stack([arrange([x[end][n] for end in ENDS]) for x in scores]) for n in names}
    candidates = list(itertools.starmap(Candidate, itertools.product(job.choices, ENDS)))
    return Trial(candidates, np.stack(held_out), stacked)


def _train(task, job, params, runs, datasets, rows):
    """Chunk by chunk, so that the network can be looked at; yields the state and its steps."""
    state = start(task, params, None, runs, datasets)
    schedule = _schedule(rows, job.steps)
    for first in range(0, job.steps, _chunk(job)):
        chunk, steps = schedule.chunk(first, _chunk(job))
        state, _ = train(task, state, datasets, runs, chunk, steps)
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


def _runs(job: StepsJob | TimeJob, choices: tuple[float, ...] = (1.0,)) -> Run:
    """Splits outermost, choices inside."""
    dataset, seed, number = job.dataset, job.seed, len(choices)
    keys = [seed_of("uci", dataset, fold, seed, "key") & 0xFFFFFFFF for fold in range(SPLITS)]
    values = jnp.tile(jnp.array(choices, jnp.float32), SPLITS)
    if isinstance(job, TimeJob) and METHODS[job.method].dampings:
        settings = Settings(jnp.ones_like(values), values)
    else:
        settings = Settings(values, jnp.full_like(values, DAMPING))
    return Run(
        settings,
        jax.vmap(jax.random.key)(np.repeat(np.array(keys, np.uint32), number)),
        jnp.repeat(jnp.arange(SPLITS, dtype=jnp.int32), number),
    )


@functools.partial(jax.jit, static_argnums=0)
def _held_out(
    task: Task, params: Params, source: Array, datasets: Datasets, rows: np.ndarray
) -> Array:
    def of_run(params: Params, index: Array) -> Array:
        mine = jnp.asarray(rows)[index]
        dist, _ = task.apply(params, None, datasets.inputs[index, mine])
        return dist.nll(datasets.targets[index, mine]).mean()

    return jax.vmap(of_run)(params, source)


def _write(job: StepsJob | TimeJob, result: dict) -> None:
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


def state_of(task: Task, network: Mlp, prepared: Prepared, dataset: str) -> tuple[TrainState, Run]:
    """A training before its first step, for measurements of cost."""
    job = StepsJob(dataset, 0, None, None)  # type: ignore[arg-type]
    runs = _runs(job, (0.01,))
    return start(task, _params(job, network, prepared), None, runs, prepared.train), runs
