"""What happens in a worker: one network on series of one kind, by every method."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.forecaster.plan import (
    BATCH,
    LOOKS,
    METHODS,
    NETWORKS,
    NOISES,
    SEEDS,
    SERIES,
    STEPS,
    Job,
    Method,
)
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from examples import forecaster
from fisher8_jax import Gaussian, fisher8_nll, fisher8_optimizer
from fisher8_jax.losses import beta_nll, nll

LOSSES: dict[str, Callable[..., Array]] = {
    "nll": nll,
    "beta_nll": beta_nll,
    "fisher8": functools.partial(fisher8_nll, axis=(0, 1)),
    "natural": functools.partial(fisher8_nll, axis=(0, 1), normalize=False),
}


def run_job(job: Job, report: Report) -> None:
    """Trains and writes the cell."""
    found = {name: scores(job, METHODS[name]) for name in NETWORKS[job.network].methods}
    looks = [STEPS * (look + 1) // LOOKS for look in range(LOOKS)]
    result = {"steps": looks, "runs": found}
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)
    report(1)


def scores(job: Job, method: Method) -> dict[str, Any]:
    """Processor seconds, and scores of held-out and of new series, (seeds, rates, evaluations)."""
    trunk = getattr(forecaster, job.network)
    parts = ("train", "validation", "test")
    series = {
        part: jax.tree.map(jnp.asarray, forecaster.make_series(seed, SERIES, NOISES[job.noise]))
        for seed, part in enumerate(parts)
    }
    predict = two_networks(forecaster.make_forecaster(trunk, 0)[1])
    train = functools.partial(train_and_score, method, predict)
    run = jax.jit(jax.vmap(train, (None, None, None, 0)))
    rates = jnp.array(NETWORKS[job.network].rates if method.has_rate else (0.0,))
    began, found = time.process_time(), []
    for seed in range(SEEDS):
        params = [forecaster.make_forecaster(trunk, seed)[0]]
        if not method.is_shared:
            params.append(forecaster.make_forecaster(trunk, 1000 + seed)[0])
        found.append(jax.device_get(run(params, series, jax.random.key(seed), rates)))
    stacked = jax.tree.map(lambda *leaves: np.round(np.stack(leaves), 5), *found)
    return {**stacked, "seconds": round(time.process_time() - began, 1)}


def two_networks(predict: Callable[..., Gaussian]) -> Callable[..., Gaussian]:
    """The mean of the first network, the log-variance of the last, which may be the same."""

    def joined(params, series):
        dists = [predict(some, series) for some in params]
        return Gaussian(dists[0].mean, dists[-1].log_variance)

    return joined


def train_and_score(method: Method, predict: Any, params: Any, series: Any, key: Array, rate: Any):
    """Scores at every evaluation of one training."""
    decay = optax.cosine_decay_schedule(1.0, STEPS)
    adam = optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(decay))
    optimizer = adam if method.has_rate else fisher8_optimizer(STEPS)
    optimizer = optax.with_extra_args_support(optimizer)

    def step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, SERIES)
        batch = jax.tree.map(lambda leaf: leaf[rows], series["train"])
        gradient = jax.grad(lambda params: loss(method, predict(params, batch), batch))(params)
        updates, state = optimizer.update(
            gradient, state, params, predict=lambda params: predict(params, batch)
        )
        if method.has_rate:
            updates = jax.tree.map(lambda leaf: rate * leaf, updates)
        return (optax.apply_updates(params, updates), state), None

    def look(carry, keys):
        carry, _ = jax.lax.scan(step, carry, keys)
        found = {}
        for part in ("validation", "test"):
            dist = predict(carry[0], series[part])
            for name, value in score(dist, series[part]).items():
                found[f"{part}_{name}"] = value
        return carry, found

    keys = jax.random.split(key, (LOOKS, STEPS // LOOKS))
    return jax.lax.scan(look, (params, optimizer.init(params)), keys)[1]


def loss(method: Method, dist: Gaussian, series: Any) -> Array:
    """The method's loss over the targets that were seen."""
    targets, is_seen = forecaster.targets_of(series)
    dist = Gaussian(dist.mean, optax.scale_gradient(dist.log_variance, method.pull))
    return LOSSES[method.loss](dist, targets, where=is_seen).mean()


def score(dist: Gaussian, series: Any) -> dict[str, Array]:
    """NLL, CRPS and RMSE over the targets that were seen."""
    targets, is_seen = forecaster.targets_of(series)
    nll, crps = forecaster.scores(dist, series)
    squared = jnp.where(is_seen, jnp.square(dist.mean - targets), 0.0)
    return {"nll": nll, "crps": crps, "rmse": jnp.sqrt(squared.sum() / is_seen.sum())}
