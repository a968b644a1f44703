"""A training with checkpoints: `python -m tests.attacks.train_steps states result`."""

import sys
from pathlib import Path

import jax
import numpy as np

from fisher8_jax.artifacts import TrainingCheckpoints, save_artifact
from tests.artifacts.train_and_die import OPTIMIZER, advance, make_params


def main(states: str, result: str) -> None:
    """300 steps; a state every ten, so that many kills fall into a save."""
    params = make_params()
    state = params, OPTIMIZER.init(params)
    advance(state, 0)  # compiles
    print("began", flush=True)
    with TrainingCheckpoints(states, every=10) as checkpoints:
        state = checkpoints.run(advance, state, steps=300)
    save_artifact(Path(result), {"leaves": [np.asarray(leaf) for leaf in jax.tree.leaves(state)]})


if __name__ == "__main__":
    main(*sys.argv[1:])
