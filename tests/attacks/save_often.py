"""Saves an artifact four hundred times: `python -m tests.attacks.save_often path`."""

import sys
from pathlib import Path

import numpy as np

from fisher8_jax.artifacts import load_artifact, save_artifact


def main(path: Path) -> None:
    """Goes on after the number in the file, which must be whole."""
    done = load_artifact(path).config["n"] if path.exists() else -1
    print("began", flush=True)
    for n in range(done + 1, 400):
        save_artifact(path, {"a": np.full(20_000, n)}, config={"n": n})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
