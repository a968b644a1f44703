"""Writes one of the two tables on which bde is published, split and scaled as its benchmark does.

`python -m ...outside.bde_data NAME SPLIT.npz`, in bde's environment: the tables come with it.
"""

import sys
from importlib import resources
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.machinery.environments import leave_with_parent


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    folder = Path(str(resources.files("bde"))) / "data"
    if name == "airfoil_bde":
        table = np.loadtxt(folder / "airfoil.csv", delimiter=",", skiprows=1)
        return table[:, :-1], table[:, -1]
    path = folder / "bike_sharing_dataset" / "hour.csv"
    columns = [*range(2, 14), 16]  # without row number, date, and the two parts of the target
    table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=columns)
    return table[:, :-1], table[:, -1]


def main(name: str, path: Path) -> None:
    """A fifth tests, seed 0; everything is scaled by the training rows."""
    inputs, targets = read(name)
    parts = train_test_split(inputs, targets[:, None], test_size=0.2, random_state=0)
    arrays = {}
    for kind, train, test in (("inputs", *parts[:2]), ("targets", *parts[2:])):
        scaler = StandardScaler().fit(train)
        arrays[f"train_{kind}"] = scaler.transform(train)
        arrays[f"test_{kind}"] = scaler.transform(test)
    arrays |= {f"{part}_targets": arrays[f"{part}_targets"].ravel() for part in ("train", "test")}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.npz")
    np.savez(unfinished, **arrays)
    unfinished.replace(path)


if __name__ == "__main__":
    leave_with_parent()
    main(sys.argv[1], Path(sys.argv[2]))
