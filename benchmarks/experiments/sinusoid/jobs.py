"""One job of the sinusoid experiment: train in chunks, look at the network after each, go on."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.sinusoid.plan import (
    BALL,
    BATCH,
    HIGH,
    LEARNING_RATE,
    LOW,
    METHODS,
    NOISES,
    POINTS,
    Job,
    setting_of,
    true_mean,
)
from benchmarks.machinery.checkpoints import resumed
from benchmarks.machinery.local_variance import local_jacobian_variance, local_kl_variance
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp, spread_over, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Run
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import Setup
from benchmarks.machinery.workers import Report

NETWORK = Mlp(hidden=(150, 150), activation=jnp.tanh)
DENSE = np.linspace(LOW, HIGH, 1201, dtype=np.float32)  # where errors are measured
SHOWN = slice(None, None, 5)  # the training points that maps and fits are kept at


class Looks(NamedTuple):
    """What is seen after each chunk; the first axis is time."""

    rmse: Any  # (times, seeds), to the true mean
    sigma_error: Any  # (times, seeds), mean |sigma / true sigma - 1|
    jacobian_variance: Any  # (times, shown points), log10, first seed
    kl_variance: Any  # (times, shown points), log10, first seed


def run_job(job: Job, report: Report) -> None:
    """Trains to the end, from the last checkpoint if there is one, and writes the cell."""
    setup = make_setup(job)
    datasets, runs = draw_datasets(job), draw_runs(job)
    state = start(setup.task, draw_params(job), None, runs, datasets)
    looks = _first_look(job, _look(job, setup, state.params, datasets))
    with resumed(job.runs / job.cell, job.spec, (state, looks)) as (saved, done, save):
        state, looks = saved
        report(int(state.step) * job.seeds)
        for index in range(done, job.chunks):
            chunk, steps = draw_chunk(job, index * job.chunk).chunk(0, job.chunk)
            state, _ = train(setup.task, state, datasets, runs, chunk, steps)
            looks = _written(looks, index + 1, _look(job, setup, state.params, datasets))
            save((state, looks), index + 1)
            report(steps * job.seeds)
    result = _result(job, setup, state.params, looks)
    store = Store(job.results)
    store.write(job.cell, spec=job.spec, result=result, provenance=provenance(job.command))


def make_setup(job: Job) -> Setup:
    """The published network and optimiser, with log-variance outputs."""
    setting = setting_of(job.setting, job.method)
    method = METHODS[job.method].override(max_kl=setting.max_kl, radius_mode="target")
    optimizer = _momentum if setting.momentum else optax.sgd
    assert setting.momentum in (0, 0.9)
    return Setup(NETWORK, method, optimizer)


def draw_datasets(job: Job) -> Datasets:
    """The training sets: a common grid, noise of each seed's own."""
    x = np.linspace(LOW, HIGH, POINTS)
    sigma = NOISES[job.noise](x)
    draws = [generator("sinusoid", job.noise, s, "noise").normal(size=POINTS) for s in _seeds(job)]
    targets = np.stack([true_mean(x) + sigma * draw for draw in draws])
    inputs = np.repeat(x[None, :, None], job.seeds, axis=0)
    return Datasets(jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.float32))


def draw_runs(job: Job) -> Run:
    """One run per seed."""
    seeds = [seed_of("sinusoid", seed, "key") & 0xFFFFFFFF for seed in _seeds(job)]
    return Run(
        dataset=jnp.arange(job.seeds, dtype=jnp.int32),
        settings=jnp.full(job.seeds, LEARNING_RATE, jnp.float32),
        key=jax.vmap(jax.random.key)(np.array(seeds, np.uint32)),
    )


def draw_params(job: Job) -> Any:
    """Stacked initial parameters, the same for every method and noise."""
    setting = setting_of(job.setting, job.method)

    def draw(seed: int) -> Any:
        rng = generator("sinusoid", seed, "init")
        params = NETWORK.init(rng, 1)
        if setting.init == "default":
            return params
        return spread_over(params, rng, low=LOW, high=HIGH, slope=setting.slope)

    return stack_members([draw(seed) for seed in _seeds(job)])


def draw_chunk(job: Job, first: int) -> Schedule:
    """The steps of the chunk that begins at `first`, drawn without those before it."""
    steps = min(job.chunk, job.steps - first)
    drawn = [
        shuffled_rows(
            generator("sinusoid", seed, "batches", first), POINTS, batch=BATCH, steps=steps
        )
        for seed in _seeds(job)
    ]
    rows = np.stack([order for order, _ in drawn], axis=1)
    factor = np.ones(steps)
    if setting_of(job.setting, job.method).decay == "cosine":
        factor = 0.5 * (1 + np.cos(math.pi * (first + np.arange(steps)) / job.steps))
    return Schedule(rows, drawn[0][1], factor.astype(np.float32))


def _momentum(learning_rate: Array) -> optax.GradientTransformation:
    return optax.sgd(learning_rate, momentum=0.9)


def _seeds(job: Job) -> range:
    return range(job.seeds)


def _first_look(job: Job, now: Looks) -> Looks:
    """Arrays for all evaluations, the first of them made."""
    empty = (np.full((job.chunks + 1, *leaf.shape), np.nan, leaf.dtype) for leaf in now)
    return _written(Looks(*empty), 0, now)


def _written(looks: Looks, index: int, now: Looks) -> Looks:
    """A copy, because the old looks may still be on their way to disk."""
    copies = Looks(*(np.array(leaf) for leaf in looks))
    for leaf, value in zip(copies, now, strict=True):
        leaf[index] = value
    return copies


def _look(job: Job, setup: Setup, params: Any, datasets: Datasets) -> Looks:
    truth = true_mean(DENSE), NOISES[job.noise](DENSE)
    return _look_compiled(setup, params, datasets.inputs[0], *map(jnp.asarray, truth))


@functools.partial(jax.jit, static_argnums=0)
def _look_compiled(setup, params, inputs, mean, sigma) -> Looks:
    def errors(params):
        dist, _ = setup.predict(params, None, jnp.asarray(DENSE)[:, None])
        rmse = jnp.sqrt(jnp.mean(jnp.square(dist.mean - mean)))
        return rmse, jnp.mean(jnp.abs(dist.std / sigma - 1))

    first = jax.tree.map(lambda leaf: leaf[0], params)
    dist, _ = setup.predict(first, None, inputs)
    features = functools.partial(setup.network.features, first)
    jacobian = local_jacobian_variance(features, inputs, radius=BALL)[SHOWN]
    kl = local_kl_variance(dist, inputs, radius=BALL)[SHOWN]
    rmse, sigma_error = jax.vmap(errors)(params)
    return Looks(rmse, sigma_error, jnp.log10(jacobian), jnp.log10(kl))


def _result(job: Job, setup: Setup, params: Any, looks: Looks) -> dict[str, Any]:
    first = jax.tree.map(lambda leaf: leaf[0], params)
    x = np.linspace(LOW, HIGH, POINTS, dtype=np.float32)[SHOWN]
    dist, _ = setup.predict(first, None, jnp.asarray(x)[:, None])
    targets = draw_datasets(job).targets[0][SHOWN]
    times = [min(i * job.chunk, job.steps) for i in range(len(looks.rmse))]
    return {
        "rmse": looks.rmse[-1],
        "sigma_error": looks.sigma_error[-1],
        "steps": times,
        "rmse_over_training": _rounded(looks.rmse),
        "sigma_error_over_training": _rounded(looks.sigma_error),
        "x": _rounded(x),
        "targets": _rounded(targets),
        "mean": _rounded(dist.mean),
        "std": _rounded(dist.std),
        "log10_jacobian_variance": _rounded(looks.jacobian_variance, 2),
        "log10_kl_variance": _rounded(looks.kl_variance, 2),
    }


def _rounded(values: Any, digits: int = 5) -> list:
    """Kept short: these are for figures."""
    return np.round(np.asarray(values, np.float64), digits).tolist()
