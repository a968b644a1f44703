"""A training that is run, killed and run again.

python -m tests.artifacts.train_and_die folder result steps every pause
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.artifacts import TrainingCheckpoints, save_artifact
from fisher8_jax.optimizers import scale_by_kl_radius

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


def train(folder: str | Path, *, steps: int, every: int, pause: float = 0):
    """The state after all steps; prints the number of each."""
    params = make_params()
    state = params, OPTIMIZER.init(params)
    advance(state, 0)  # compiles
    print("began", flush=True)
    with TrainingCheckpoints(folder, every=every) as checkpoints:
        state, start = checkpoints.restore(state) or (state, 0)
        for step in range(start, steps):
            time.sleep(pause)
            print(step, flush=True)
            state = advance(state, step)
            checkpoints.save(step + 1, state)
    return state


def main(folder: str, result: str, steps: str, every: str, pause: str = "0") -> None:
    """The leaves of the last state go to the artifact `result`."""
    state = train(folder, steps=int(steps), every=int(every), pause=float(pause))
    save_artifact(Path(result), {"leaves": jax.tree.leaves(state)})


if __name__ == "__main__":
    main(*sys.argv[1:])
