"""The jobs of the comparison: costs of a step, and runs of equal processor time."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.comparison.plan import (
    COST_ROUNDS,
    LOOKS,
    METHODS,
    PROBLEMS,
    CostJob,
    RunJob,
)
from benchmarks.experiments.comparison.problems import Problem, load_problem
from benchmarks.experiments.curvature.training import Settings, make_task
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Run, Task
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.metrics import nll, rmse


def run_costs(job: CostJob, report: Report) -> None:
    """Seconds of one step of one seed, all methods in turn: median and quartiles."""
    problem, setting = load_problem(job.problem, job.data), PROBLEMS[job.problem]
    steps, seeds = setting.cost_steps, setting.seeds
    programs = {}
    for method in METHODS:
        task = make_task(method, problem.network, 1000, setting.cap)
        datasets, runs = _datasets(problem), draw_runs(job.problem, 1e-4)
        schedule = draw_schedule(job.problem, problem, steps)
        state = start(task, problem.params, None, runs, datasets)
        programs[method] = functools.partial(_timed, task, state, datasets, runs, schedule)
        programs[method]()  # compiles
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(COST_ROUNDS):
        for method, program in programs.items():
            seconds[method].append(program() / (steps * seeds))
    result = {name: np.quantile(values, [0.25, 0.5, 0.75]) for name, values in seconds.items()}
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )
    report(1)


def _timed(task: Task, state: Any, datasets: Datasets, runs: Run, schedule: Schedule) -> float:
    copy = jax.block_until_ready(jax.tree.map(jnp.array, state))  # the loop gives memory away
    began = time.process_time()
    jax.block_until_ready(train(task, copy, datasets, runs, schedule)[0].params)
    return time.process_time() - began


def run_method(job: RunJob, report: Report) -> None:
    """Trains with every rate and keeps the one with the best last NLL on held-out rows."""
    problem = load_problem(job.problem, job.data)
    task = make_task(job.method, problem.network, job.steps, PROBLEMS[job.problem].cap)
    tried = []
    for rate in job.rates:
        tried.append(_train(job, task, problem, rate))
        report(job.steps)
    write_best(job, tried)


def write_best(job: RunJob, tried: list[dict[str, Any]]) -> None:
    """The cell of a method: the looks of the best rate, and what all rates came to."""
    last = [np.mean(looks["held_out"][-1]) for looks in tried]
    best = int(np.argmin(np.where(np.isfinite(last), last, np.inf)))
    looks = tried[best]
    chunk = -(-job.steps // LOOKS)
    result = {
        "seconds_per_step": job.seconds,
        "rate": job.rates[best],
        "held_out_nll": last,
        "rmse": looks["rmse"][-1],
        "nll": looks["nll"][-1],
        "rmse_over_time": np.mean(looks["rmse"], axis=1),
        "nll_over_time": np.mean(looks["nll"], axis=1),
        "steps_at_looks": [min((i + 1) * chunk, job.steps) for i in range(len(looks["nll"]))],
    }
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


def _train(job: RunJob, task: Task, problem: Problem, rate: float) -> dict[str, Any]:
    datasets, runs = _datasets(problem), draw_runs(job.problem, rate)
    # A copy, because the loop gives the memory of its state away.
    first_params = jax.tree.map(jnp.array, problem.params)
    state = start(task, first_params, None, runs, datasets)
    schedule = draw_schedule(job.problem, problem, job.steps)
    chunk = -(-job.steps // LOOKS)
    looks: dict[str, list[Any]] = {"held_out": [], "rmse": [], "nll": []}
    for first in range(0, job.steps, chunk):
        part, steps = schedule.chunk(first, chunk)
        state, _ = train(task, state, datasets, runs, part, steps)
        take_look(problem, state.params, looks)
    return looks


def take_look(problem: Problem, params: Any, looks: dict[str, list[Any]]) -> None:
    """Adds the scores of all seeds to the lists."""
    values = _scores(problem.network, params, tuple(problem[4:]))
    for name, value in zip(looks, values, strict=True):
        looks[name].append(np.asarray(value))


@functools.partial(jax.jit, static_argnums=0)
def _scores(network: Any, params: Any, data: Any) -> tuple[Array, Array, Array]:
    """Held-out NLL in scaled units; test RMSE against the truth and NLL in the data's units."""
    from benchmarks.experiments.curvature.training import Predict

    def of_seed(params, held_inputs, held, inputs, truth, targets, shift, scale):
        predict = Predict(network)
        dist = predict(params, inputs).unscale(shift, scale)
        held_nll = predict(params, held_inputs).nll(held).mean()
        return held_nll, rmse(dist, truth), nll(dist, targets, constant=False)

    floats = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), data)
    return jax.vmap(of_seed)(params, *floats)


def _datasets(problem: Problem) -> Datasets:
    return Datasets(jnp.asarray(problem.inputs), jnp.asarray(problem.targets))


def draw_runs(name: str, rate: float) -> Run:
    """One run a seed."""
    setting = PROBLEMS[name]
    settings = Settings(jnp.full(setting.seeds, rate), jnp.full(setting.seeds, setting.damping))
    keys = jax.random.split(jax.random.key(0), setting.seeds)
    return Run(settings, keys, jnp.arange(setting.seeds, dtype=jnp.int32))


def draw_schedule(name: str, problem: Problem, steps: int) -> Schedule:
    """Shuffled epochs of every seed, the same for all methods; a linear decay."""
    rows = [
        shuffled_rows(
            generator("comparison", name, seed, "batches"),
            problem.targets.shape[1],
            batch=PROBLEMS[name].batch,
            steps=steps,
        )[0]
        for seed in range(PROBLEMS[name].seeds)
    ]
    decay = 1 - np.arange(steps) / steps
    return Schedule(np.stack(rows, axis=1), np.zeros(steps, bool), decay.astype(np.float32))
