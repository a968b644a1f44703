"""The networks of the study: two layers of 50, one training for all that stop early."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from chex import ArrayTree
from jax import Array

from fisher8_jax import Gaussian, network_gradient, network_optimizer

HIDDEN = 50
STEPS = 600
BATCH = 64
HELD_OUT = 0.2
EVERY = 30

# MC dropout trains by Adam on the NLL; its steps are cheaper.
DROPOUT = 0.1
DROPOUT_STEPS = 3000
DROPOUT_RATE = 2e-3


class Rows(NamedTuple):
    """Standardised rows."""

    inputs: Array
    targets: Array


def init(seed: int, features: int) -> ArrayTree:
    """Normal kernels of variance 1 / fan-in, a small last layer."""
    random = np.random.default_rng(seed)
    sizes = (features, HIDDEN, HIDDEN, 2)
    params = {}
    for layer, (n, m) in enumerate(itertools.pairwise(sizes)):
        scale = (0.1 if layer == 2 else 1.0) / np.sqrt(n)
        params[f"kernel{layer}"] = (scale * random.normal(size=(n, m))).astype(np.float32)
        params[f"bias{layer}"] = np.zeros(m, np.float32)
    return params


def predict_one(params: ArrayTree, x: Array) -> Gaussian:
    """SiLU; mean and log-variance."""
    for layer in range(2):
        x = jax.nn.silu(x @ params[f"kernel{layer}"] + params[f"bias{layer}"])
    return Gaussian(*(x @ params["kernel2"] + params["bias2"]))


predict = jax.jit(jax.vmap(predict_one, (None, 0)))


def predict_dropped(params: ArrayTree, x: Array, key: Array) -> Gaussian:
    """The same with units dropped."""
    for layer, own in enumerate(jax.random.split(key, 2)):
        x = jax.nn.silu(x @ params[f"kernel{layer}"] + params[f"bias{layer}"])
        kept = jax.random.bernoulli(own, 1 - DROPOUT, x.shape)
        x = jnp.where(kept, x / (1 - DROPOUT), 0)
    out = x @ params["kernel2"] + params["bias2"]
    return Gaussian(out[..., 0], out[..., 1])


def train_natural(rows: Rows, seed: int) -> ArrayTree:
    """Parameter-space natural gradients, stopped by a held-out fifth of the rows."""
    train, held_out, batches = _prepare(rows, seed, STEPS)
    return _natural(init(seed, rows.inputs.shape[1]), train, held_out, batches)


def train_dropout(rows: Rows, seed: int) -> ArrayTree:
    """Adam with dropout, stopped by a held-out fifth of the rows."""
    train, held_out, batches = _prepare(rows, seed, DROPOUT_STEPS)
    start = init(seed, rows.inputs.shape[1])
    return _dropout(start, train, held_out, batches, jax.random.key(seed))


def _prepare(rows: Rows, seed: int, steps: int) -> tuple[Rows, Rows, np.ndarray]:
    random = np.random.default_rng(seed)
    order = random.permutation(len(rows.targets))
    number = int(HELD_OUT * len(order))
    held_out, train = (Rows(*(x[p] for x in rows)) for p in (order[:number], order[number:]))
    size = min(BATCH, len(train.targets))
    epochs = -(-steps * size // len(train.targets))
    every = np.concatenate([random.permutation(len(train.targets)) for _ in range(epochs)])
    return train, held_out, every[: steps * size].reshape(steps // EVERY, EVERY, size)


def _held_out_nll(params: ArrayTree, held_out: Rows) -> Array:
    dist = jax.vmap(predict_one, (None, 0))(params, held_out.inputs)
    return jnp.mean(dist.nll(held_out.targets))


def _keep_best(train_some: Callable, start: ArrayTree, held_out: Rows, batches: Array) -> ArrayTree:
    """Trains by parts; the parameters with the best held-out NLL after any of them."""

    def part(carry: ArrayTree, batches: Array) -> tuple[ArrayTree, None]:
        state, best, lowest = carry
        state, params = train_some(state, batches)
        nll = _held_out_nll(params, held_out)
        is_better = nll < lowest
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), params, best)
        return (state, best, jnp.where(is_better, nll, lowest)), None

    (_, best, _), _ = jax.lax.scan(part, (*start, jnp.inf), batches)
    return best


@jax.jit
def _natural(params: ArrayTree, train: Rows, held_out: Rows, batches: Array) -> ArrayTree:
    optimizer = network_optimizer(STEPS, average=None)

    def step(carry: ArrayTree, places: Array) -> tuple[ArrayTree, None]:
        params, state = carry
        found = network_gradient(predict_one, params, train.inputs[places], train.targets[places])
        updates, state = optimizer.update(found.gradient, state, params, step_kl=found.step_kl)
        return (optax.apply_updates(params, updates), state), None

    def some(state: ArrayTree, batches: Array) -> tuple[ArrayTree, ArrayTree]:
        state, _ = jax.lax.scan(step, state, batches)
        return state, state[0]

    return _keep_best(some, ((params, optimizer.init(params)), params), held_out, batches)


@jax.jit
def _dropout(
    params: ArrayTree, train: Rows, held_out: Rows, batches: Array, key: Array
) -> ArrayTree:
    optimizer = optax.adam(DROPOUT_RATE)

    def loss(params: ArrayTree, places: Array, key: Array) -> Array:
        dist = predict_dropped(params, train.inputs[places], key)
        return jnp.mean(dist.nll(train.targets[places]))

    def step(carry: ArrayTree, places: Array) -> tuple[ArrayTree, None]:
        params, state, key = carry
        key, own = jax.random.split(key)
        updates, state = optimizer.update(jax.grad(loss)(params, places, own), state, params)
        return (optax.apply_updates(params, updates), state, key), None

    def some(state: ArrayTree, batches: Array) -> tuple[ArrayTree, ArrayTree]:
        state, _ = jax.lax.scan(step, state, batches)
        return state, state[0]

    start = ((params, optimizer.init(params), key), params)
    return _keep_best(some, start, held_out, batches)


@functools.partial(jax.jit, static_argnums=3)
def predict_by_dropout(params: ArrayTree, inputs: Array, key: Array, samples: int) -> Gaussian:
    """Predictions of many random networks, stacked."""
    keys = jax.random.split(key, samples)
    return jax.lax.map(lambda own: predict_dropped(params, inputs, own), keys)
