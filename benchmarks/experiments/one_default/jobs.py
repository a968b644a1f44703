"""What happens in a worker: one method on one problem, all budgets and seeds."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.curvature import sinusoid
from benchmarks.experiments.curvature.plan import SinusoidJob
from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.one_default.plan import (
    BATCH,
    LENGTHS,
    RATES,
    SEEDS,
    SINUSOID,
    SINUSOID_BATCH,
    SINUSOID_SEEDS,
    SINUSOID_STEPS,
    STEPS,
    WIDTHS,
    Job,
)
from benchmarks.experiments.one_default.problems import Data, draw
from benchmarks.experiments.sinusoid.plan import true_mean
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import fisher8, fisher8_optimizer, network_gradient, network_optimizer
from fisher8_jax.posterior import train_by_evidence

_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": jax.nn.silu}


def run_job(job: Job, report: Report) -> None:
    """Trains and writes the cell."""
    result = sinusoid_errors(job) if job.problem == SINUSOID else gaps(job)
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)
    report(1)


def gaps(job: Job) -> dict[str, Any]:
    """NLL on test rows above that of the truth, by budget (Adam: length and rate) and seed."""
    data = [draw(job.problem, seed) for seed in range(SEEDS)]
    predict = Predict(Mlp(WIDTHS, _ACTIVATIONS[job.variant]))
    features = data[0].inputs.shape[1]
    starts = [
        predict.network.init(generator("one_default", job.problem, seed, "init"), features)
        for seed in range(SEEDS)
    ]

    def scores(steps: int, rate: float) -> list[float]:
        trained = _train_all(job.method, predict, starts, data, steps, rate)
        return _scores(predict, data, trained)

    if job.method == "adam":
        found: Any = {length: [scores(length, rate) for rate in RATES] for length in LENGTHS}
    else:
        found = {steps: scores(steps, 0.0) for steps in STEPS}
    return {"gap": found}


def _train_all(
    method: str, predict: Predict, starts: list[Any], data: list[Data], steps: int, rate: float
) -> list[Any]:
    """The parameters of every seed."""
    if method == "evidence":
        return [
            by_evidence(predict, start, (rows.inputs, rows.targets), BATCH, steps, seed)
            for seed, (start, rows) in enumerate(zip(starts, data, strict=True))
        ]
    orders = [_order(seed, len(rows.targets), BATCH, steps) for seed, rows in enumerate(data)]
    return [
        train(method, predict, start, (jnp.asarray(rows.inputs), rows.targets), order, rate)
        for start, rows, order in zip(starts, data, orders, strict=True)
    ]


def by_evidence(
    predict: Predict, start: Any, data: tuple[Any, Any], batch: int, steps: int, seed: int
) -> Any:
    """Training by evidence with everything but the steps left at its default."""
    x, y = (jnp.asarray(leaf) for leaf in data)
    trained = train_by_evidence(predict, start, x, y, steps=steps, batch_size=batch, seed=seed)
    return trained.params


def _order(seed: int, rows: int, batch: int, steps: int) -> np.ndarray:
    rng = generator("one_default", seed, "batches")
    return shuffled_rows(rng, rows, batch=batch, steps=steps)[0]


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(
    method: str, predict: Predict, params: Any, data: tuple[Array, Array], order: Array, rate: Array
) -> Any:
    """One training with everything but the steps, and Adam's rate, left at its default."""
    steps = len(order)
    optimizer = {
        "network": lambda: network_optimizer(steps),
        "fisher8": lambda: fisher8_optimizer(steps),
        "adam": lambda: optax.with_extra_args_support(
            optax.chain(
                optax.scale_by_adam(),
                optax.scale_by_schedule(optax.linear_schedule(1.0, 0.0, steps)),
            )
        ),
    }[method]()

    def step(carry: Any, places: Array) -> tuple[Any, None]:
        params, state = carry
        x, y = (leaf[places] for leaf in data)
        if method == "network":
            found = network_gradient(predict, params, x, y)
            updates, state = optimizer.update(found.gradient, state, params, step_kl=found.step_kl)
        elif method == "fisher8":
            gradient = jax.grad(lambda p: fisher8(predict(p, x)).nll(y).mean())(params)
            updates, state = optimizer.update(
                gradient, state, params, predict=lambda p: predict(p, x)
            )
        else:
            gradient = jax.grad(lambda p: predict(p, x).nll(y).mean())(params)
            updates, state = optimizer.update(gradient, state, params)
            updates = jax.tree.map(lambda leaf: -rate * leaf, updates)
        return (optax.apply_updates(params, updates), state), None

    data = (data[0], jnp.asarray(data[1]))
    (params, state), _ = jax.lax.scan(step, (params, optimizer.init(params)), order)
    return optax.tree_utils.tree_get(state, "average") if method == "network" else params


@functools.partial(jax.jit, static_argnums=0)
def _nll(predict: Predict, params: Any, inputs: Array, targets: Array) -> Array:
    return predict(params, inputs).nll(targets).mean()


def _scores(predict: Predict, data: list[Data], trained: list[Any]) -> list[float]:
    return [
        float(_nll(predict, params, rows.test_inputs, rows.test_targets)) - rows.true_nll
        for params, rows in zip(trained, data, strict=True)
    ]


def sinusoid_errors(job: Job) -> dict[str, Any]:
    """RMSE of every seed, in the units of the data."""
    own = SinusoidJob(job.variant, "standardised", SINUSOID_SEEDS, job.results)
    data, starts = sinusoid.draw_datasets(own), sinusoid.draw_params(own)
    predict, trained = Predict(sinusoid.NETWORK), []
    for seed in range(SINUSOID_SEEDS):
        start = jax.tree.map(lambda leaf, seed=seed: np.asarray(leaf[seed]), starts)
        x, y = data.inputs[seed], data.targets[seed]
        if job.method == "evidence":
            size = SINUSOID_BATCH, SINUSOID_STEPS
            trained.append(by_evidence(predict, start, (x, y), *size, seed))
        else:
            order = _order(seed, len(y), SINUSOID_BATCH, SINUSOID_STEPS)
            trained.append(train(job.method, predict, start, (x, y), order, 0.0))
    dists = sinusoid._predict(own, stack_members(trained), sinusoid.DENSE)
    truth = true_mean(sinusoid.DENSE)
    return {"rmse": [float(np.sqrt(np.mean(np.square(np.asarray(d.mean) - truth)))) for d in dists]}


def processor_seconds() -> dict[str, Any]:
    """Of a second training in the same process, one row for each budget, 2x64 SiLU units."""
    data = draw("friedman", 0)
    predict = Predict(Mlp(WIDTHS, jax.nn.silu))
    start = predict.network.init(generator("one_default", "cost"), data.inputs.shape[1])
    seconds: dict[str, Any] = {}
    for method in ("evidence", "network", "fisher8", "adam"):
        for steps in STEPS:
            for _ in range(2):
                began = time.process_time()
                jax.block_until_ready(_train_all(method, predict, [start], [data], steps, 1e-3))
                spent = time.process_time() - began
            seconds[f"{method}-{steps}"] = round(spent, 3)
    return seconds
