"""The estimator with checkpoints: `python -m tests.attacks.fit_estimator states result`."""

import sys

import numpy as np

from fisher8_jax.estimator import Fisher8Regressor
from tests.estimator.methods import ADAM, RADIUS


def main(states: str, result: str) -> None:
    """Two candidates with states of their own; the better one is saved."""
    settings = {"methods": (RADIUS, ADAM), "n_members": 2, "hidden_layer_sizes": (8,)}
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (300, 2))
    targets = inputs[:, 0] + 0.1 * rng.normal(size=300)
    Fisher8Regressor(**settings, max_steps=50).fit(inputs, targets)  # compiles
    print("began", flush=True)
    model = Fisher8Regressor(**settings, max_steps=1000, random_state=0, checkpoint_dir=states)
    model.fit(inputs, targets).save(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
