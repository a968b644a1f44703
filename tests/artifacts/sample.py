"""What the committed artifacts of each format hold: `python -m tests.artifacts.sample file`."""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np

from fisher8_jax.artifacts import TargetScaler, save_artifact

CONFIG = {"hidden": [50, 50], "name": "größe", "rate": 0.1, "none": None, "deep": {"a": [True]}}
TREES = {
    "params": {
        "dense": [{"kernel": np.arange(6, dtype=np.float32).reshape(2, 3) / 7}, np.ones((), "f4")],
        "half": (np.arange(3) / 3).astype(jnp.bfloat16),
        "quarter": np.array([0.5, -2, 448], jnp.float8_e4m3fn),
    },
    "scaler": TargetScaler(np.array([1e9 + 1 / 3]), np.array([2.0])),
    "numbers": [
        np.array([np.nan, -np.inf, -0.0, 5e-324]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([255, 0], np.uint8),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1.5, 65504], np.float16),
        np.zeros((3, 0), np.float32),
    ],
    "array": np.array([1, 2], np.int32),
}

if __name__ == "__main__":
    save_artifact(pathlib.Path(sys.argv[1]), TREES, config=CONFIG)
