"""Training on one recovery problem: held-out curves of both methods for every planned length.

One compiled program per method serves all planned lengths: the length is an argument, not a
constant of the program.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from benchmarks.experiments.families.problems import Problem
from fisher8_jax import fisher8_nll
from fisher8_jax.transforms import descend_within, scale_by_kl_radius

EVALUATE_EVERY = 5
NUM_TRAIN, NUM_TEST, BATCH_SIZE, WIDTH = 65536, 4096, 512, 64
LEARNING_RATES = (3e-3, 1e-2, 3e-2)
# One setting for every family and every length: `fisher8_optimizer(num_steps, **SETTING)`.
SETTING = {"momentum": 0.8, "second_moment": 0.99}

Optimizer: TypeAlias = optax.GradientTransformationExtraArgs
Curves = dict[str, np.ndarray]  # per setting the excess NLL, (seeds, evaluations)
Trainer = Callable[[Sequence[int], Sequence[int]], Curves]  # of lengths and seeds


class Data(NamedTuple):
    """Draws from the truth, and the NLL of the true parameters on the test part."""

    train_inputs: Array
    train_targets: Array
    test_inputs: Array
    test_targets: Array
    true_nll: Array


def recipe(num_steps: Array | int) -> Optimizer:
    """`fisher8_optimizer(num_steps, **SETTING)` for a traced number of steps."""
    max_kl = jnp.minimum(0.3, 600 / num_steps)  # `default_max_kl`, which wants a known number

    def radius(count: Array) -> Array:
        return max_kl * jnp.maximum(1 - count / num_steps, 0) ** 2

    return descend_within(scale_by_kl_radius(radius), **SETTING)


def fisher8_trainer(problem: Problem, longest: int) -> Trainer:
    """Trains runs planned for each of the lengths; their keys are `over LENGTH`."""

    def loss(dist: Any, targets: Array) -> Array:
        return fisher8_nll(dist, targets).mean()

    @jax.jit
    def train(seeds: Array, steps: Array) -> Array:
        def one(seed: Array) -> Array:
            return _run(problem, loss, recipe(steps), steps, longest, seed)

        return jax.vmap(one)(seeds)

    def curves(lengths: Sequence[int], seeds: Sequence[int]) -> Curves:
        return {f"over {n}": _cut(train(jnp.asarray(seeds), n), n) for n in lengths}

    return curves


def adam_trainer(problem: Problem, longest: int) -> Trainer:
    """Adam on the plain NLL: per rate a linear decay over each length, and a constant rate."""

    def loss(dist: Any, targets: Array) -> Array:
        return dist.nll(targets).mean()

    @jax.jit
    def train(seeds: Array, end: Array, steps: Array) -> Array:
        def one(rate: Array, seed: Array) -> Array:
            adam = optax.adam(lambda count: rate * jnp.maximum(1 - count / end, 0))
            return _run(problem, loss, optax.with_extra_args_support(adam), steps, longest, seed)

        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(jnp.asarray(LEARNING_RATES), seeds)

    def curves(lengths: Sequence[int], seeds: Sequence[int]) -> Curves:
        result = {}
        for end, steps in ((np.inf, max(lengths)), *((float(n), n) for n in lengths)):
            words = "constant" if np.isinf(end) else f"over {steps}"
            found = train(jnp.asarray(seeds), end, steps)
            for rate, curve in zip(LEARNING_RATES, found, strict=True):
                result[f"{rate:g} {words}"] = _cut(curve, steps)
        return result

    return curves


def _cut(curves: Array, steps: int) -> np.ndarray:
    return np.asarray(curves)[:, : steps // EVALUATE_EVERY]


def draw(problem: Problem, key: Array) -> Data:
    """Training and test part of one seed."""
    keys = jax.random.split(key, 4)
    train = jax.random.uniform(keys[0], (NUM_TRAIN, 2), minval=-2, maxval=2)
    test = jax.random.uniform(keys[1], (NUM_TEST, 2), minval=-2, maxval=2)
    targets = problem.truth(test).sample(keys[3])
    true_nll = problem.truth(test).nll(targets).mean()
    return Data(train, problem.truth(train).sample(keys[2]), test, targets, true_nll)


def _run(
    problem: Problem,
    loss: Callable[[Any, Array], Array],
    optimizer: Optimizer,
    steps: Array,
    longest: int,
    seed: Array,
) -> Array:
    """Trains for `steps`; the held-out NLL above the truth's, nan after the last step."""
    data = draw(problem, jax.random.key(seed))
    keys = jax.random.key(seed + 2)

    def step(index, carry):
        params, state = carry
        rows = jax.random.randint(jax.random.fold_in(keys, index), (BATCH_SIZE,), 0, NUM_TRAIN)
        predict = functools.partial(_network, problem, inputs=data.train_inputs[rows])
        gradient = jax.grad(lambda p: loss(predict(p), data.train_targets[rows]))(params)
        updates, state = optimizer.update(gradient, state, params, predict=predict)
        return optax.apply_updates(params, updates), state

    def chunk(number, carry):
        *training, curve = carry
        first = number * EVALUATE_EVERY
        params, state = lax.fori_loop(first, first + EVALUATE_EVERY, step, tuple(training))
        held_out = _network(problem, params, data.test_inputs).nll(data.test_targets).mean()
        return params, state, curve.at[number].set(held_out - data.true_nll)

    params = _initial(problem, jax.random.key(seed + 1))
    curve = jnp.full(longest // EVALUATE_EVERY, jnp.nan)
    start = params, optimizer.init(params), curve
    return lax.fori_loop(0, steps // EVALUATE_EVERY, chunk, start)[-1]


def _network(problem: Problem, params: Any, inputs: Array) -> Any:
    hidden = inputs
    for weights, bias in params[:-1]:
        hidden = jnp.tanh(hidden @ weights + bias)
    weights, bias = params[-1]
    return problem.distribution(hidden @ weights + bias)


def _initial(problem: Problem, key: Array) -> Any:
    """LeCun initialisation; the last layer starts small, around the problem's own start."""
    sizes = (2, WIDTH, WIDTH, problem.num_outputs)
    keys = jax.random.split(key, 3)
    params = [
        (jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]
    weights, bias = params[-1]
    params[-1] = (0.1 * weights, bias + jnp.asarray(problem.start or 0.0))
    return params
