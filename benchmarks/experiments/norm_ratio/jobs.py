"""What happens in a worker: one problem, all ratios, rates and seeds in one compiled program."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.norm_ratio.plan import (
    BATCH,
    PROCESS_STEPS,
    RATES,
    RATIOS,
    SEEDS,
    STEPS,
    VARIANTS,
    WIDTHS,
    Job,
)
from benchmarks.experiments.uci.data import load, standardize
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from examples import neural_process
from fisher8_jax import Gaussian, fisher8

NETWORK = Mlp(hidden=WIDTHS, activation=jax.nn.silu)


def run_job(job: Job, report: Report) -> None:
    """Trains and writes the cell."""
    result = process_scores() if job.data is None else table_scores(job)
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)
    report(1)


def scaled(dist: Gaussian, ratio: Array, targets: Array) -> Gaussian:
    """Fisher8 with the log-variance's part times `ratio`; nan stands for the batch's own ratio.

    That one is the ratio of the two parts' lengths in nats before they are normalised: the root of
    the mean of `(1 - z^2)^2 / 2` over that of `z^2`, which is 1 where the variances are right.
    """
    z_squared = jnp.square(targets - dist.mean) * jnp.exp(-dist.log_variance)
    own = jnp.sqrt(jnp.mean(jnp.square(1 - z_squared)) / (2 * jnp.mean(z_squared)))
    factor = jax.lax.stop_gradient(jnp.where(jnp.isnan(ratio), own, ratio))
    return fisher8(Gaussian(dist.mean, scale_gradient(dist.log_variance, factor)))


def scale_gradient(x: Array, factor: Array) -> Array:
    """`x`, whose gradient is multiplied; unlike Optax's the factor may be traced."""
    return factor * x + jax.lax.stop_gradient((1 - factor) * x)


def predict(params: Any, x: Array) -> Gaussian:
    """A dense network with a shared trunk."""
    (mean, log_variance), _ = NETWORK.forward(
        params, None, x, key=None, stop_gradient=False, train=False
    )
    return Gaussian(mean, log_variance)


def train(loss: Any, params: Any, keys: Array, rate: Array) -> Any:
    """Adam with a linear decay to 0; `loss` takes parameters and a key."""
    steps = len(keys)

    def step(carry, at):
        params, state = carry
        index, key = at
        gradient = jax.grad(loss)(params, key)
        direction, state = optax.scale_by_adam().update(gradient, state)
        length = -rate * (1 - index / steps)
        updates = jax.tree.map(lambda leaf: length * leaf, direction)
        return (optax.apply_updates(params, updates), state), None

    start = params, optax.scale_by_adam().init(params)
    return jax.lax.scan(step, start, (jnp.arange(steps), keys))[0][0]


def table_scores(job: Job) -> dict[str, Any]:
    """Validation NLL, test NLL and test RMSE, in standardised units, (ratios, rates, seeds)."""
    ratios = jnp.array([jnp.nan if ratio is None else ratio for ratio in RATIOS])

    def scores(params, data, key, rate, ratio):
        x, y = data["train"]

        def loss(params, key):
            rows = jax.random.randint(key, (BATCH,), 0, len(y))
            return scaled(predict(params, x[rows]), ratio, y[rows]).nll(y[rows]).mean()

        trained = train(loss, params, jax.random.split(key, STEPS), rate)
        dist, (_, targets) = predict(trained, data["test"][0]), data["test"]
        rmse = jnp.sqrt(jnp.mean(jnp.square(dist.mean - targets)))
        held = predict(trained, data["held"][0]).nll(data["held"][1]).mean()
        return {"validation_nll": held, "test_nll": dist.nll(targets).mean(), "test_rmse": rmse}

    over_rates = jax.vmap(scores, (None, None, None, 0, None))
    run = jax.jit(jax.vmap(over_rates, (None, None, None, None, 0)))
    found = [
        run(*start(job, seed), jax.random.key(seed), jnp.array(RATES), ratios)
        for seed in range(SEEDS)
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *found)


def start(job: Job, seed: int) -> tuple[Any, dict[str, Any]]:
    """First parameters, and a published split with a tenth of its training rows held out."""
    assert job.data is not None
    split = standardize(load(job.data)[seed]).split
    order = generator("norm_ratio", job.problem, seed).permutation(len(split.train_targets))
    held = len(order) // 10
    x, y = split.train_inputs[order], split.train_targets[order]
    data = {
        "train": (x[held:], y[held:]),
        "held": (x[:held], y[:held]),
        "test": (split.test_inputs, split.test_targets),
    }
    rng = generator("norm_ratio", job.problem, seed, "init")
    params = NETWORK.init(rng, x.shape[1])
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (params, data))


def process_scores() -> dict[str, Any]:
    """NLL of new curves of the neural process, (variants, rates, seeds)."""
    test = neural_process.curves(jax.random.key(1000), 200)

    def score(params, key, rate, ratio, variant):
        name, _, trunk = variant

        def process(params, x, y, is_context):
            first = neural_process.predict(params[0], x, y, is_context)
            if trunk == "shared":
                return first
            other = neural_process.predict(params[1], x, y, is_context)
            return Gaussian(first.mean, other.log_variance)

        def loss(params, key):
            x, y, is_context = neural_process.curves(key)
            dist = process(params, x, y, is_context)
            dist = Gaussian(dist.mean, scale_gradient(dist.log_variance, ratio))
            return (fisher8(dist, axis=(0, 1)) if name == "fisher8" else dist).nll(y).mean()

        trained = train(loss, params, jax.random.split(key, PROCESS_STEPS), rate)
        return process(trained, *test).nll(test[1]).mean()

    def of_variant(variant: Any) -> np.ndarray:
        over = jax.vmap(lambda p, k, r: score(p, k, r, variant[1], variant), (0, 0, None))
        run = jax.jit(jax.vmap(over, (None, None, 0)))
        pairs = [[process_params(2 * seed + part) for part in (0, 1)] for seed in range(SEEDS)]
        keys = jax.random.split(jax.random.key(0), SEEDS)
        return np.asarray(run(stack_members(pairs), keys, jnp.array(RATES)))

    return {"test_nll": [of_variant(variant) for variant in VARIANTS]}


def process_params(seed: int) -> dict[str, Any]:
    """Layers as the program makes them."""
    width = neural_process.WIDTH
    sizes = {"encoder": (2, width, width), "decoder": (1 + width, width, width, 2)}
    keys = iter(jax.random.split(jax.random.key(seed), 5))
    return {
        name: [neural_process.dense(next(keys), a, b) for a, b in itertools.pairwise(widths)]
        for name, widths in sizes.items()
    }
