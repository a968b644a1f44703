"""One job of the weak-lensing table: train with a plateau schedule, keep the best, score, store."""

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.weak_lensing.batches import (
    batch_sharding,
    epoch_numbers,
    make_batch,
    prefetch,
    replicated,
)
from benchmarks.experiments.weak_lensing.data import (
    TARGETS,
    Maps,
    Scales,
    Split,
    measure_scales,
    open_survey,
    split_survey,
)
from benchmarks.experiments.weak_lensing.network import Cnn
from benchmarks.experiments.weak_lensing.plan import METHODS, Budget, Job
from benchmarks.experiments.weak_lensing.score import weak_lensing_score
from benchmarks.machinery.checkpoints import resumed
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Batch, Run, TrainState, init, update
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import Setup
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian
from fisher8_jax.metrics import nll, rmse

ONE_SIGMA = math.erf(1 / math.sqrt(2))
# The published losses add the targets up, the training loop averages over them.
SUM_OVER_TARGETS = float(len(TARGETS))
# torch.optim.lr_scheduler.ReduceLROnPlateau's threshold, relative to the best score.
THRESHOLD = 1e-4


class Plateau(NamedTuple):
    """Where the schedule stands; numbers as arrays, so that checkpoints hold them."""

    rate: np.ndarray
    best: np.ndarray  # the best validation score so far
    bad_for_rate: np.ndarray  # epochs without a better score since the rate changed
    bad_for_stop: np.ndarray  # epochs without a better score


class Progress(NamedTuple):
    """Everything a resumed training needs."""

    state: TrainState
    best: tuple[Any, Any]  # parameters and variables with the best validation score
    plateau: Plateau
    history: np.ndarray  # (epochs, 3): training loss, validation score, learning rate


class Prepared(NamedTuple):
    """The data of a job."""

    maps: Maps
    scales: Scales
    split: Split


def run_job(job: Job, report: Report) -> None:
    """Trains, evaluates the best state on the test maps and writes the cell."""
    data = prepare(job.folder, job.galaxies)
    setup = make_setup(job)
    progress, epochs = fit(job, setup, data, report)
    dist, targets = predict_physical(job, setup, progress.best, data, data.split.test)
    result = {
        **scores(dist, targets),
        "epochs": epochs,
        "history": progress.history[:epochs],
        "maps": {part: len(rows) for part, rows in data.split._asdict().items()},
    }
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


@functools.lru_cache(maxsize=1)
def prepare(folder: Path, galaxies: float) -> Prepared:
    """Opens the files, splits and measures; kept for the next job."""
    survey = open_survey(folder)
    split = split_survey(survey)
    scales = measure_scales(survey, galaxies, split.train)
    return Prepared(Maps(survey, galaxies, scales), scales, split)


def make_setup(job: Job) -> Setup:
    """The network with the outputs that the method wants, trained by plain SGD."""
    method = METHODS[job.method]
    dropout = (0.2, 0.1)[: len(job.dense)]
    network = Cnn(len(TARGETS), HEADS[method.head].outputs, job.channels, job.dense, dropout)
    return Setup(network, method, optax.sgd)


def scores(dist: Gaussian, targets: Array) -> dict[str, Any]:
    """The challenge's score, and RMSE, NLL with its constant and coverage per parameter."""
    low, high = dist.interval(ONE_SIGMA)
    per_target = {
        "rmse": rmse(dist, targets),
        "nll": nll(dist, targets),
        "coverage68": jnp.mean((low <= targets) & (targets <= high), axis=0),
    }
    named = {
        f"{metric}_{name}": float(values[index])
        for metric, values in per_target.items()
        for index, name in enumerate(TARGETS)
    }
    return {"score": float(weak_lensing_score(dist, targets).sum()), **named}


def fit(job: Job, setup: Setup, data: Prepared, report: Report) -> tuple[Progress, int]:
    """Trains until the budget or the patience ends, going on from a checkpoint.

    Returns:
        The final progress, and the number of epochs that were trained.
    """
    sharding = batch_sharding(job.budget.batch)
    progress = jax.device_put(_start(job, setup, data), replicated(sharding))
    progress = progress._replace(plateau=_start_plateau(job.budget), history=_history(job.budget))
    with resumed(job.scratch / job.cell, job.spec, progress) as (progress, epoch, save):
        report(epoch)
        while epoch < job.budget.epochs and not has_ended(job.budget, progress.plateau):
            progress = train_epoch(job, setup, data, progress, epoch)
            epoch += 1
            save(progress, epoch)
            report(1)
    report(job.budget.epochs - epoch)
    return progress, epoch


def train_epoch(job: Job, setup: Setup, data: Prepared, progress: Progress, epoch: int) -> Progress:
    """One pass over the training maps, the validation score and what follows from it."""
    rng = generator("weak_lensing", job.seed, "batches", epoch)
    run, rate = draw_run(job), np.float32(progress.plateau.rate / job.budget.learning_rate)
    training, losses = progress.state, []
    batches = epoch_numbers(rng, data.split.train, job.budget.batch)
    for batch in _on_device(job, data, batches):
        training, loss = _update(setup, training, run, batch, rate)
        losses.append(loss)
    state = (training.params, training.variables)
    dist, targets = predict_physical(job, setup, state, data, data.split.validation)
    score = float(weak_lensing_score(dist, targets).sum())
    history = progress.history.copy()
    history[epoch] = float(jnp.mean(jnp.stack(losses))), score, float(progress.plateau.rate)
    is_best = score > float(progress.plateau.best)
    # A copy, because the next step gives the memory of its arguments up.
    best = jax.tree.map(jnp.copy, state) if is_best else progress.best
    return Progress(training, best, advance(job.budget, progress.plateau, score), history)


def advance(budget: Budget, plateau: Plateau, score: float) -> Plateau:
    """The schedule after an epoch: halves the rate when bad epochs exceed the patience.

    A score counts as better when it exceeds the best one by 1e-4 of its size. A score that is not a
    number never does.
    """
    best = float(plateau.best)
    margin = THRESHOLD * abs(best) if np.isfinite(best) else 0.0
    is_better = score > best + margin
    bad_for_rate = 0 if is_better else int(plateau.bad_for_rate) + 1
    bad_for_stop = 0 if is_better else int(plateau.bad_for_stop) + 1
    rate = float(plateau.rate)
    if bad_for_rate > budget.rate_patience:
        rate, bad_for_rate = max(rate * budget.factor, budget.min_rate), 0
    best = score if score > best else best
    return _plateau(rate, best, bad_for_rate, bad_for_stop)


def has_ended(budget: Budget, plateau: Plateau) -> bool:
    """Whether the score has not improved for too long."""
    return int(plateau.bad_for_stop) >= budget.stop_patience


def predict_physical(
    job: Job, setup: Setup, state: tuple[Any, Any], data: Prepared, rows: np.ndarray
) -> tuple[Gaussian, Array]:
    """Predictions and targets for maps in physical units, padding removed."""
    size = job.budget.batch
    batches = [rows[first : first + size] for first in range(0, len(rows), size)]
    outputs = [_predict(setup, *state, batch.inputs) for batch in _on_device(job, data, batches)]
    dist = jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(rows)], *outputs)
    dist = dist.unscale(jnp.asarray(data.scales.target_shift, jnp.float32)[None], _scale(data))
    return dist, jnp.asarray(data.maps.targets(rows), jnp.float32)


def draw_run(job: Job) -> Run:
    """Learning rate and random key of the one training."""
    seed = np.uint32(seed_of("weak_lensing", job.seed, "key") & 0xFFFFFFFF)
    is_published_sum = not job.method.startswith("fisher8")
    rate = job.budget.learning_rate * (SUM_OVER_TARGETS if is_published_sum else 1.0)
    return Run(jnp.asarray(rate, jnp.float32), jax.random.key(seed))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(setup, state, run, batch, rate):
    return update(setup.task, state, run, batch, rate)


@functools.partial(jax.jit, static_argnums=0)
def _predict(setup, params, variables, inputs):
    return setup.predict(params, variables, inputs)[0]


def _on_device(job: Job, data: Prepared, batches: list[np.ndarray]) -> Iterator[Batch]:
    """Batches on the devices, prepared while the last one is being used."""
    sharding = batch_sharding(job.budget.batch)

    def make(numbers: np.ndarray) -> Batch:
        batch = make_batch(data.maps, data.scales, numbers, job.budget.batch)
        return jax.device_put(batch, sharding)

    return prefetch(batches, make)


def _start(job: Job, setup: Setup, data: Prepared) -> Progress:
    network = setup.network
    assert isinstance(network, Cnn)
    shape = data.maps.survey.mask.shape
    params, variables = network.init(seed_of("weak_lensing", job.seed, "init"), shape)
    # Compiled, so that no two leaves share a buffer: they are given up to the first step.
    state = jax.jit(functools.partial(init, setup.task))(params, variables, draw_run(job))
    best = jax.tree.map(jnp.copy, (params, variables))
    return Progress(state, best, _start_plateau(job.budget), _history(job.budget))


def _start_plateau(budget: Budget) -> Plateau:
    return _plateau(budget.learning_rate, -np.inf, 0, 0)


def _plateau(rate: float, best: float, bad_for_rate: int, bad_for_stop: int) -> Plateau:
    return Plateau(
        np.asarray(rate), np.asarray(best), np.asarray(bad_for_rate), np.asarray(bad_for_stop)
    )


def _history(budget: Budget) -> np.ndarray:
    return np.full((budget.epochs, 3), np.nan)


def _scale(data: Prepared) -> Array:
    return jnp.asarray(data.scales.target_scale, jnp.float32)[None]
