"""A training that is run, killed and run again by a test: `python -m ... folder result`."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.optimizers import scale_by_kl_radius

STEPS = 60
OPTIMIZER = optax.chain(optax.adam(1.0), scale_by_kl_radius(0.01))


def predict(params, inputs):
    hidden = jnp.tanh(inputs @ params["w1"])
    mean, log_variance = jnp.moveaxis(hidden @ params["w2"], -1, 0)
    return Gaussian(mean, log_variance)


@jax.jit
def advance(state, step):
    params, optimizer = state
    inputs = jax.random.normal(jax.random.fold_in(jax.random.key(7), step), (16, 2))
    targets = inputs[:, 0] * inputs[:, 1]

    def loss(params):
        return fisher8(predict(params, inputs)).nll(targets).mean()

    gradients = jax.grad(loss)(params)
    updates, optimizer = OPTIMIZER.update(
        gradients, optimizer, params, predict=lambda p: predict(p, inputs)
    )
    return optax.apply_updates(params, updates), optimizer


def make_params():
    keys = jax.random.split(jax.random.key(0))
    return {
        "w1": jax.random.normal(keys[0], (2, 8)),
        "w2": 0.1 * jax.random.normal(keys[1], (8, 2)),
    }


def main(folder: str | Path, result: str | Path, pause: float) -> None:
    params = make_params()

    def slow_advance(state, step):
        time.sleep(pause)
        print(step, flush=True)
        return advance(state, step)

    with TrainingCheckpoints(folder, every=5) as checkpoints:
        params, optimizer = checkpoints.run(
            slow_advance, (params, OPTIMIZER.init(params)), steps=STEPS
        )
    leaves = jax.tree.leaves((params, optimizer))
    np.savez(result, *(np.asarray(leaf) for leaf in leaves))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
