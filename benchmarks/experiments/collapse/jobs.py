"""One job: a method and a network on some sets, all sets and seeds as runs of one program.

Everything is a default: Flax's initial values, a head that predicts mean and log-variance, and
`fisher8_optimizer(steps)`, or `network_gradient` and `network_optimizer(steps)`; beside them Adam
at 0.001 on the plain NLL.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.experiments.collapse.data import Arrays, load, stack
from benchmarks.experiments.collapse.optimizers import OPTIMIZERS
from benchmarks.experiments.collapse.plan import LOOKED_AT, WIDTHS, Job
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp, Params, affine, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Run, Task, plain_network
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian
from fisher8_jax.metrics import nll, rmse
from fisher8_jax.training import (
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)

CHUNK = 100
Scores = dict[str, list[Any]]


def run_job(job: Job, report: Report) -> None:
    """Trains, looks at every network and writes the cell."""
    arrays = _arrays(job.sets, job.paths, job.seeds)
    task = make_task(job.method, job.activation, job.width)
    params, runs = _start_runs(job, arrays)
    datasets = Datasets(jnp.asarray(arrays.train_inputs), jnp.asarray(arrays.train_targets))
    state = start(task, params, None, runs, datasets)
    for first in range(0, job.steps, CHUNK):
        schedule = _draw(job, arrays.train_rows, first)
        state, _ = train(task, state, datasets, runs, schedule)
        jax.block_until_ready(state.step)
        report(job.run_steps * CHUNK / job.steps)
    scores = _by_set(job, _look(job.activation, job.width, state.params, _to_look_at(arrays)))
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=scores, provenance=origin)


@functools.lru_cache(maxsize=32)
def _arrays(sets: tuple[str, ...], paths: tuple[Any, ...], seeds: int) -> Arrays:
    pairs = zip(sets, paths, strict=True)
    return stack([split for name, path in pairs for split in load(name, path, seeds)])


def _network(activation: str, width: str) -> Mlp:
    return Mlp(WIDTHS[width], getattr(jax.nn, activation))


@functools.lru_cache
def make_task(method: str, activation: str, width: str) -> Task:
    """The same object for equal names, so that all budgets share one compiled program."""
    mlp = _network(activation, width)

    def predict(params: Params, inputs: Array) -> Gaussian:
        return Gaussian(*mlp.forward(params, None, inputs)[0])

    def method_of(steps: Array, factor: Array) -> Method:
        if method == "network":
            return Method(NetworkNaturalGradient())
        gradient = LossGradient("nll") if method == "adam" else OutputNaturalGradient()
        return Method(gradient, OPTIMIZERS[method](steps))

    return Task(plain_network(predict), method_of, num_steps=lambda steps: steps)


def _start_runs(job: Job, arrays: Arrays) -> tuple[Params, Run]:
    names = [(name, seed) for name in job.sets for seed in range(job.seeds)]
    padded = arrays.train_inputs.shape[-1]
    params = [
        flax_parameters(seed_of("collapse", *name, job.width, "init"), int(features), padded, job)
        for name, features in zip(names, arrays.features, strict=True)
    ]
    keys = [seed_of("collapse", *name, "key") & 0xFFFFFFFF for name in names]
    count = len(names)
    return stack_members(params), Run(
        jnp.full(count, job.steps, jnp.int32),
        jax.vmap(jax.random.key)(np.array(keys, np.uint32)),
        jnp.arange(count),
    )


def flax_parameters(seed: int, features: int, padded: int, job: Job) -> Params:
    """Flax's initial values of dense layers: LeCun's normal kernels, biases of zero."""
    sizes = (features, *WIDTHS[job.width], 2)
    keys = jax.random.split(jax.random.key(seed & 0xFFFFFFFF), len(sizes) - 1)
    draw = jax.nn.initializers.lecun_normal()
    layers = [
        {"w": np.asarray(draw(key, shape)), "b": np.zeros(shape[1], np.float32)}
        for key, *shape in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    layers[0]["w"] = np.pad(layers[0]["w"], ((0, padded - features), (0, 0)))
    return {"trunk": layers[:-1], "head": layers[-1]}


def _draw(job: Job, train_rows: np.ndarray, first: int) -> Schedule:
    """Rows of the next steps, drawn with repetition, the same for all methods and networks."""
    names = [(name, seed) for name in job.sets for seed in range(job.seeds)]
    drawn = [
        generator("collapse", *name, job.batch, first).integers(count, size=(CHUNK, job.batch))
        for name, count in zip(names, train_rows, strict=True)
    ]
    rows = np.stack(drawn, axis=1).astype(np.int32)
    return Schedule(rows, np.zeros(CHUNK, bool), np.ones(CHUNK, np.float32))


def _to_look_at(arrays: Arrays) -> tuple[Array, ...]:
    """Rows of the training part, repeated where there are too few, and the test part."""
    rows = np.arange(LOOKED_AT) % arrays.train_rows[:, None]
    runs = np.arange(len(rows))[:, None]
    seen = arrays.train_inputs[runs, rows], arrays.train_targets[runs, rows]
    return tuple(map(jnp.asarray, (*seen, *arrays[4:])))


def constant_share(predict: Callable[[Array], Gaussian], inputs: Array) -> Array:
    """The share of a batch whose prediction no longer depends on the input.

    Every input is moved in a random direction, each feature in proportion to its spread over the
    batch. A prediction counts as constant if that changes it by less than 1e-8 nats.
    """
    spread = jnp.std(inputs, axis=0, keepdims=True)
    direction = spread * jax.random.normal(jax.random.key(0), inputs.shape, spread.dtype)
    dist, change = jax.jvp(predict, (inputs,), (direction,))
    moved = 0.5 * dist.fisher_norm_sq(change)
    is_still = jnp.all(moved.reshape(inputs.shape[0], -1) < 1e-8, axis=1)
    return jnp.mean(is_still, dtype=spread.dtype)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _look(activation: str, width: str, params: Params, seen: tuple[Array, ...]) -> Any:
    mlp = _network(activation, width)

    def of_run(params, inputs, targets, test_inputs, test_targets, mask):
        def predict(x):
            return Gaussian(*mlp.forward(params, None, x)[0])

        dist, test = predict(inputs), predict(test_inputs)
        shares, hidden = [], inputs
        for layer in params["trunk"]:
            hidden = mlp.activation(affine(hidden, layer))
            is_dead = jnp.max(hidden, axis=0) == jnp.min(hidden, axis=0)
            shares.append(jnp.mean(is_dead, dtype=jnp.float32))
        finite = jnp.isfinite(dist.mean) & jnp.isfinite(dist.log_variance)
        return {
            "rmse": rmse(test, test_targets, where=mask),
            "nll": nll(test, test_targets, where=mask, constant=False),
            "train_rmse": rmse(dist, targets),
            "train_nll": nll(dist, targets, constant=False),
            "spread": jnp.std(dist.mean),
            "constant_share": constant_share(predict, inputs),
            "not_finite": jnp.sum(~finite),
            "dead": jnp.stack(shares),
        }

    return jax.vmap(of_run)(params, *seen)


def _by_set(job: Job, looked: dict[str, Array]) -> dict[str, Scores]:
    """For every set the list over its seeds, to four digits."""
    found: dict[str, Scores] = {}
    for number, name in enumerate(job.sets):
        runs = slice(number * job.seeds, (number + 1) * job.seeds)
        found[name] = {key: _rounded(np.asarray(value)[runs]) for key, value in looked.items()}
    return found


def _rounded(values: np.ndarray) -> Any:
    digits = np.vectorize(lambda x: float(f"{x:.4g}"))
    return digits(values.astype(np.float64)).tolist()
