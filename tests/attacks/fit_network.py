"""`training.fit` with checkpoints: `python -m tests.attacks.fit_network states result`."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import TrainingCheckpoints, save_artifact
from fisher8_jax.training import Plan, fit


def predict(params, inputs):
    """A small dense network."""
    hidden = jnp.tanh(inputs[:, None] @ params["w1"] + params["b1"])
    mean, log_variance = jnp.moveaxis(hidden @ params["w2"], -1, 0)
    return Gaussian(mean, log_variance)


def main(states: str, result: str) -> None:
    """400 steps with twenty validations, a state after each."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, 400).astype(np.float32)
    targets = (np.sin(4 * inputs) + 0.1 * rng.normal(size=400)).astype(np.float32)
    params = {"w1": jax.random.normal(jax.random.key(0), (1, 8)), "b1": jnp.zeros((1, 8))}
    params["w2"] = 0.1 * jax.random.normal(jax.random.key(1), (8, 2))
    print("began", flush=True)
    with TrainingCheckpoints(states, every=1) as checkpoints:
        plan = Plan(steps=400, batch_size=16, num_validations=20)
        fitted = fit(
            predict, params, (inputs, targets), plan, checkpoints=checkpoints, show_progress=False
        )
    leaves = jax.tree.leaves((fitted.params, fitted.history, fitted.metrics))
    save_artifact(Path(result), {"leaves": [np.asarray(leaf) for leaf in leaves]})


if __name__ == "__main__":
    main(*sys.argv[1:])
