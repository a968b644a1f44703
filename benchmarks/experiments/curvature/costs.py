"""Processor time of a step of every method, in turn, so that a busy machine hurts all alike."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.curvature import sinusoid
from benchmarks.experiments.curvature.jobs import state_of
from benchmarks.experiments.curvature.plan import (
    AVERAGE,
    BATCH,
    COST_ROUNDS,
    COST_STEPS,
    COSTS_CELL,
    COSTS_SPEC,
    METHODS,
    SinusoidJob,
    is_network,
    program_of,
)
from benchmarks.experiments.curvature.training import SILU, make_task
from benchmarks.experiments.uci.jobs import load_prepared
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.loop import Datasets, Schedule, TrainState, start, train
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.step import Run, Task
from benchmarks.machinery.store import Store

Program = Callable[[], None]


def measure_costs(data: Path, results: Path) -> None:
    """Seconds of one step of one training: median and quartiles over the rounds."""
    prepared = load_prepared(data)
    steps, rounds = COST_STEPS, COST_ROUNDS
    rows = np.random.default_rng(0).integers(min(prepared.train_rows), size=(steps, SPLITS, BATCH))
    schedule = Schedule(rows, np.zeros(steps, bool), np.ones(steps, np.float32))
    programs: dict[str, tuple[Program, int]] = {}
    for method in sorted(set(map(program_of, METHODS))):
        average = AVERAGE if is_network(method) else None  # part of its preset
        task = make_task(method, SILU, 10 * steps, average=average)
        state, runs = state_of(task, SILU, prepared, data.stem)
        program = _program(task, state, prepared.train, runs, schedule)
        programs[method] = (program, steps * SPLITS)
    for method, batch in (("network", 100), ("radius", 32)):
        programs[f"sinusoid_{method}"] = (_sinusoid_program(method, batch, steps), steps)
    for program, _ in programs.values():
        program()  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, (program, number) in programs.items():
            began = time.process_time()
            program()
            seconds[name].append((time.process_time() - began) / number)
    result = {name: np.quantile(values, [0.25, 0.5, 0.75]) for name, values in seconds.items()}
    command = "python -m benchmarks curvature --experiments costs"
    Store(results).write(COSTS_CELL, spec=COSTS_SPEC, result=result, provenance=provenance(command))


def _program(
    task: Task, state: TrainState, datasets: Datasets, runs: Run, schedule: Schedule
) -> Program:
    def run() -> None:
        # A copy, because the loop gives the memory of its state away.
        copy = jax.tree.map(jnp.array, state)
        jax.block_until_ready(train(task, copy, datasets, runs, schedule)[0].params)

    return run


def _sinusoid_program(method: str, batch: int, steps: int) -> Program:
    job = SinusoidJob("constant", "standardised", 1, Path())
    task = make_task(method, sinusoid.NETWORK, job.steps, job.max_kl)
    datasets, runs = sinusoid.draw_datasets(job), sinusoid.draw_runs(job)
    state = start(task, sinusoid.draw_params(job), None, runs, datasets)
    rows = np.random.default_rng(0).integers(len(datasets.targets[0]), size=(steps, 1, batch))
    schedule = Schedule(rows, np.zeros(steps, bool), np.ones(steps, np.float32))
    return _program(task, state, datasets, runs, schedule)


def steps_for(costs: dict[str, Any], method: str, adam_steps: int) -> int:
    """How many steps of a method take as long as so many of Adam on the NLL."""
    return round(adam_steps * costs["adam_nll"][1] / costs[program_of(method)][1])
