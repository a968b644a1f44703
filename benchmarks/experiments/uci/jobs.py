"""One job of the UCI tables: a method on a set, all splits and learning rates as runs."""

import functools
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.uci import data as uci_data
from benchmarks.experiments.uci.plan import BATCH, BUDGETS, SPLITS, Job
from benchmarks.machinery.baselines import BASELINES
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.loop import Datasets, Schedule, TrainState, start, train
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.scoring import SCORES, score
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Apply, Run
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import OptimizerOf, Setup
from benchmarks.machinery.workers import Report

# Every set is padded to these shapes, so that a method compiles once for all of them.
PADDED_FEATURES = 16
PADDED_TRAIN_ROWS = 10752
PADDED_TEST_ROWS = 1200


OPTIMIZERS: dict[str, OptimizerOf] = {"sgd": optax.sgd, "adam": optax.adam}


class Prepared(NamedTuple):
    """A set with all its splits, standardised and padded."""

    features: int
    train_rows: tuple[int, ...]
    train: Datasets
    test_inputs: Array
    test_targets: Array
    test_mask: Array
    shift: Array
    scale: Array


def run_job(job: Job, report: Report) -> None:
    """Trains and scores all runs of a job and writes the cells that are missing."""
    store = Store(job.results)
    missing = [rate for rate in job.rates if store.read(job.cell(rate), job.spec(rate)) is None]
    prepared = load_prepared(job.data)
    setup = make_setup(job)
    state, runs = _train_runs(job, setup, prepared, report)
    scores = score_runs(setup.predict, state.params, runs.dataset, prepared)
    for index, rate in enumerate(job.rates):
        if rate in missing:
            folds = {key: values[index :: len(job.rates)] for key, values in scores.items()}
            spec, origin = job.spec(rate), provenance(job.command)
            store.write(job.cell(rate), spec=spec, result=folds, provenance=origin)


def make_setup(job: Job) -> Setup:
    """The shared trunk of 50 and 50 units with the outputs that the method wants."""
    method = BASELINES[job.method]
    network = Mlp(hidden=(50, 50), activation=jax.nn.elu, outputs=HEADS[method.head].outputs)
    return Setup(network, method, OPTIMIZERS[job.optimizer])


@functools.lru_cache(maxsize=8)
def load_prepared(path: Path) -> Prepared:
    """All splits of a set, ready for the device."""
    splits = [uci_data.standardize(split) for split in uci_data.load(path)]
    parts = [s.split for s in splits]
    train_inputs = [_pad(p.train_inputs, PADDED_TRAIN_ROWS, PADDED_FEATURES) for p in parts]
    train_targets = [_pad(p.train_targets, PADDED_TRAIN_ROWS) for p in parts]
    test_inputs = [_pad(p.test_inputs, PADDED_TEST_ROWS, PADDED_FEATURES) for p in parts]
    test_rows = np.array([len(p.test_targets) for p in parts])
    return Prepared(
        features=parts[0].train_inputs.shape[1],
        train_rows=tuple(len(p.train_targets) for p in parts),
        train=Datasets(jnp.asarray(np.stack(train_inputs)), jnp.asarray(np.stack(train_targets))),
        test_inputs=jnp.asarray(np.stack(test_inputs)),
        test_targets=jnp.asarray(np.stack([_pad(p.test_targets, PADDED_TEST_ROWS) for p in parts])),
        test_mask=jnp.asarray(np.arange(PADDED_TEST_ROWS) < test_rows[:, None]),
        shift=jnp.asarray(np.array([s.target_shift for s in splits], np.float32)),
        scale=jnp.asarray(np.array([s.target_scale for s in splits], np.float32)),
    )


def draw_schedule(job: Job, prepared: Prepared) -> Schedule:
    """The batches of every split, the same for all methods and learning rates."""
    steps = job.steps(prepared.train_rows[0])
    drawn = [
        shuffled_rows(_rng(job, fold, "batches"), rows, batch=BATCH, steps=steps)
        for fold, rows in enumerate(prepared.train_rows)
    ]
    rows = np.stack([order for order, _ in drawn], axis=1)
    return Schedule(rows, drawn[0][1], np.ones(steps, np.float32))


class Drawn(Protocol):
    """What initial parameters and runs are drawn from."""

    @property
    def dataset(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rates(self) -> tuple[float, ...]: ...


def draw_runs(job: Drawn, setup: Setup, features: int) -> tuple[Any, Run]:
    """Initial parameters and constants, splits outermost, learning rates inside."""
    folds = range(SPLITS)
    init = setup.network.init  # type: ignore[attr-defined]
    inits = [init(_rng(job, k, "init"), features, PADDED_FEATURES) for k in folds]
    rates = len(job.rates)
    params = jax.tree.map(lambda leaf: np.repeat(leaf, rates, axis=0), stack_members(inits))
    seeds = [seed_of("uci", job.dataset, k, job.seed, "key") & 0xFFFFFFFF for k in folds]
    keys = jax.vmap(jax.random.key)(np.repeat(np.array(seeds, np.uint32), rates))
    source = np.repeat(np.arange(len(folds), dtype=np.int32), rates)
    learning_rate = np.tile(np.array(job.rates, np.float32), len(folds))
    return params, Run(jnp.asarray(learning_rate), keys, jnp.asarray(source))


def score_runs(
    apply: Apply, params: Any, source: Array | None, prepared: Prepared
) -> dict[str, np.ndarray]:
    """RMSE, NLL without its constant, and ECE of every run in the units of the file."""
    test = (prepared.test_inputs, prepared.test_targets, prepared.test_mask)
    scores = _score_runs(apply, params, source, test, prepared.shift, prepared.scale)
    return {name: np.asarray(scores[name]) for name in SCORES}


@functools.partial(jax.jit, static_argnums=0)
def _score_runs(apply, params, source, test, shift, scale):
    def of_run(params, index):
        inputs, targets, mask = (leaf[index] for leaf in test)
        dist, _ = apply(params, None, inputs)
        dist = dist.unscale(shift[index], scale[index])
        return score(dist, targets * scale[index] + shift[index], mask)

    return jax.vmap(of_run)(params, source)


def _train_runs(
    job: Job, setup: Setup, prepared: Prepared, report: Report
) -> tuple[TrainState, Run]:
    schedule = draw_schedule(job, prepared)
    params, runs = draw_runs(job, setup, prepared.features)
    state = start(setup.task, params, None, runs, prepared.train)
    length = BUDGETS[job.optimizer].chunk
    for first in range(0, np.shape(schedule.rows)[0], length):
        chunk, steps = schedule.chunk(first, length)
        state, _ = train(setup.task, state, prepared.train, runs, chunk, steps)
        jax.block_until_ready(state.step)
        report(steps * len(runs.key))
    return state, runs


def _rng(job: Drawn, fold: int, purpose: str) -> np.random.Generator:
    return generator("uci", job.dataset, fold, job.seed, purpose)


def _pad(array: np.ndarray, rows: int, columns: int | None = None) -> np.ndarray:
    """Zeros appended to give `array` the common shape."""
    fill = [(0, rows - len(array))]
    if columns is not None:
        fill.append((0, columns - array.shape[1]))
    return np.pad(array, fill).astype(np.float32)
