"""A ReLU network on noisy data, trained in small batches by steps that suit it or do not."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments.collapse.jobs import constant_share
from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import TrainingRecord

HIDDEN, POINTS, BATCH, STEPS = 16, 512, 16, 400
FLOAT = jnp.float32


class Setup(NamedTuple):
    """One training; the defaults are healthy."""

    learning_rate: float = 0.01
    decay: float = 1.0  # 1 for a linear decay to 0, 0 for a constant learning rate
    seed: int = 0


def draw(key, number=POINTS):
    key_x, key_y = jax.random.split(key)
    x = jax.random.normal(key_x, (number, 3), FLOAT)
    return x, x[:, 0] + 0.5 * x[:, 1] + jax.random.normal(key_y, (number,), FLOAT)


def hidden_layers(params, x):
    first = jax.nn.relu(x @ params["first"] + params["first_bias"][None])
    return first, jax.nn.relu(first @ params["second"] + params["second_bias"][None])


def predict(params, x):
    outputs = hidden_layers(params, x)[1] @ params["heads"] + params["biases"][None]
    return Gaussian(outputs[:, 0], outputs[:, 1])


def initial(key):
    keys = jax.random.split(key, 3)
    return {
        "first": jax.random.normal(keys[0], (3, HIDDEN), FLOAT) * (2 / 3) ** 0.5,
        "first_bias": jnp.zeros(HIDDEN, FLOAT),
        "second": jax.random.normal(keys[1], (HIDDEN, HIDDEN), FLOAT) * (2 / HIDDEN) ** 0.5,
        "second_bias": jnp.zeros(HIDDEN, FLOAT),
        "heads": 0.1 * jax.random.normal(keys[2], (HIDDEN, 2), FLOAT),
        "biases": jnp.zeros(2, FLOAT),
    }


def train(setup):
    """Adam on small batches; test predictions, their targets and the notes of the training."""
    key_train, key_test, key_net, key_batches = jax.random.split(jax.random.key(setup.seed), 4)
    x, y = draw(key_train)
    optimizer = optax.scale_by_adam()
    params = initial(key_net)

    def step(carry, count):
        params, state = carry
        rows = jax.random.randint(jax.random.fold_in(key_batches, count), (BATCH,), 0, POINTS)
        loss, gradient = jax.value_and_grad(lambda p: predict(p, x[rows]).nll(y[rows]).mean())(
            params
        )
        updates, state = optimizer.update(gradient, state)
        rate = setup.learning_rate * (1 - setup.decay * count / STEPS)
        new = jax.tree.map(lambda p, u: p - rate * u, params, updates)
        notes = {
            "losses": loss,
            "learning_rate": rate,
            "step_kl": predict(params, x[rows]).kl(predict(new, x[rows])).mean(),
            "constant_share": constant_share(lambda x: predict(new, x), x[:64]),
        }
        return (new, state), notes

    start = (params, optimizer.init(params))
    (params, _), notes = jax.lax.scan(step, start, jnp.arange(STEPS))
    test_x, test_y = draw(key_test)
    dead = [jnp.mean(jnp.ptp(layer, axis=0) == 0) for layer in hidden_layers(params, x)]
    return predict(params, test_x), test_y, notes, dead


def train_all(setups):
    """Trains all setups in one program; predictions, targets and record of each."""
    columns = zip(*setups, strict=True)
    stacked = Setup(*(jnp.asarray(c, t) for c, t in zip(columns, (FLOAT, FLOAT, int), strict=True)))
    dist, targets, notes, dead = jax.device_get(jax.jit(jax.vmap(train))(stacked))
    runs = []
    for i in range(len(setups)):
        shares = {"the first layer": float(dead[0][i]), "the second layer": float(dead[1][i])}
        own = {name: np.asarray(series[i]) for name, series in notes.items()}
        record = TrainingRecord(**own, dead_share=shares, target_mean=0.0, target_std=1.5)
        runs.append((jax.tree.map(lambda leaf, i=i: leaf[i], dist), targets[i], record))
    return runs
