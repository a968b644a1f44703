"""Small networks, really trained, healthy or with one thing done wrong.

Every way to go wrong is a number in `Setup`, so that all trainings are one compiled program.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.diagnostics import TrainingRecord

HIDDEN, TRAINING_POINTS, VALIDATION_POINTS, TEST_POINTS, STEPS = 24, 1000, 300, 1500, 400

FLOAT = jnp.float32
# These run for seconds, unlike nearly all programs of the tests; `conftest.py` asks for level 0.
WORTH_OPTIMIZING = {"xla_backend_optimization_level": 1}


class Setup(NamedTuple):
    """One training; the defaults are healthy."""

    seed: int = 0
    learning_rate: float = 0.01
    steps: int = STEPS
    decay: float = 1.0  # 1 for a cosine decay to 0, 0 for a constant learning rate
    points: int = TRAINING_POINTS  # used for training
    frequency: float = 2.0  # of the sine that is learnt
    first_layer: float = 2.0  # standard deviation of the first weights
    target_shift: float = 0.0
    target_scale: float = 1.0  # of the targets that the network sees
    lowest_log_variance: float = -30.0
    highest_log_variance: float = 30.0
    scale_rate: float = 1.0  # factor on the gradient of the log-variance
    label_noise: float = 0.0  # added to the training targets only
    unit_variance: float = 0.0  # 1 for a fit with unit variance
    warm_up: float = 0.0  # share of the steps with unit variance


def draw(setup, key, number):
    """Inputs in [-2, 2] and targets around a sine whose noise grows from 0.2 to 0.5."""
    key_x, key_y = jax.random.split(key)
    x = jax.random.uniform(key_x, (number,), FLOAT, minval=-2, maxval=2)
    noise = 0.2 + 0.075 * (x + 2)
    return x, jnp.sin(setup.frequency * x) + noise * jax.random.normal(key_y, (number,), FLOAT)


def initial(setup, key):
    keys = jax.random.split(key, 3)
    weights = setup.first_layer * jax.random.normal(keys[0], (HIDDEN,), FLOAT)
    centres = jax.random.uniform(keys[1], (HIDDEN,), FLOAT, minval=-2, maxval=2)
    return {
        "first": (weights, -weights * centres),
        "second": HIDDEN**-0.5 * jax.random.normal(keys[2], (HIDDEN, HIDDEN), FLOAT),
        "heads": jnp.zeros((HIDDEN, 2), FLOAT),
        "biases": jnp.zeros(2, FLOAT),
    }


def predict(setup, params, x):
    weights, bias = params["first"]
    hidden = jnp.tanh(x[:, None] * weights[None, :] + bias[None, :])
    hidden = jnp.tanh(hidden @ params["second"])
    outputs = hidden @ params["heads"] + params["biases"][None, :]
    log_variance = setup.scale_rate * outputs[:, 1]
    log_variance = jnp.clip(log_variance, setup.lowest_log_variance, setup.highest_log_variance)
    return Gaussian(outputs[:, 0], log_variance * (1 - setup.unit_variance))


def train(setup, *, corrected=False):
    """Full-batch Adam with a cosine decay; returns test predictions and the notes of every step."""
    keys = jax.random.split(jax.random.key(setup.seed), 5)
    key_train, key_validation, key_test, key_noise, key_net = keys
    x, y = draw(setup, key_train, TRAINING_POINTS)
    y = y + setup.label_noise * jax.random.normal(key_noise, y.shape, FLOAT)
    test_x, test_y = draw(setup, key_test, TEST_POINTS)
    used = jnp.arange(TRAINING_POINTS) < setup.points
    scaled = setup.target_scale * y + setup.target_shift
    held_x, held_y = draw(setup, key_validation, VALIDATION_POINTS)
    held_y = setup.target_scale * held_y + setup.target_shift
    params = initial(setup, key_net)
    optimizer = optax.scale_by_adam()

    def loss(params, count):
        is_early = (count < setup.warm_up * setup.steps).astype(FLOAT)
        now = setup._replace(unit_variance=jnp.maximum(setup.unit_variance, is_early))
        dist = predict(now, params, x)
        return jnp.mean((fisher8(dist) if corrected else dist).nll(scaled), where=used)

    def step(carry, count):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, count)
        updates, state = optimizer.update(gradient, state)
        decay = 1 - 0.5 * setup.decay * (1 - jnp.cos(jnp.pi * count / setup.steps))
        rate = jnp.where(count < setup.steps, setup.learning_rate * decay, 0.0)
        new = jax.tree.map(lambda p, u: p - rate * u, params, updates)
        before, after = predict(setup, params, x), predict(setup, new, x)
        notes = {
            "losses": value,
            "learning_rate": rate,
            "validation_losses": predict(setup, params, held_x).nll(held_y).mean(),
            "step_kl": before.kl(after).mean(),
            "smallest_log_variance": before.log_variance.min(),
            "largest_log_variance": before.log_variance.max(),
        }
        return (new, state), notes

    (params, _), notes = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(STEPS))
    dist = predict(setup, params, test_x).unscale(
        -setup.target_shift / setup.target_scale, 1 / setup.target_scale
    )
    return {
        "dist": dist,
        "targets": test_y,
        "notes": notes,
        "training_targets": scaled,
    }


def train_all(setups, *, corrected=False):
    """Trains all setups at once; returns predictions, targets and record of each."""
    stacked = Setup(*(jnp.asarray(column, FLOAT) for column in zip(*setups, strict=True)))
    stacked = stacked._replace(seed=stacked.seed.astype(int))
    each = jax.vmap(functools.partial(train, corrected=corrected))
    runs = jax.device_get(jax.jit(each, compiler_options=WORTH_OPTIMIZING)(stacked))
    return [_unpack(setup, runs, i) for i, setup in enumerate(setups)]


def _unpack(setup, runs, i):
    run = jax.tree.map(lambda leaf: leaf[i], runs)
    notes = {name: np.asarray(series[: setup.steps]) for name, series in run["notes"].items()}
    seen = run["training_targets"].astype(np.float64)
    record = TrainingRecord(
        **notes,
        target_mean=float(seen.mean()),
        target_std=float(seen.std()),
    )
    return run["dist"], run["targets"], record
