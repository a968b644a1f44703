"""The splits of all sets: eight of the UCI benchmark, and those in the folder `tables`.

A set in `tables` is a folder with `data.csv.gz`, rows without a header whose last column is the
target, and `test_mask.csv.gz`, one column for each split in which 1 marks the test rows. Both are
read once and kept as one `.npz`, as the UCI sets are. The two tables on which bde is published come
with that program; its environment writes them, split and scaled by its protocol.
"""

import hashlib
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.experiments.tables.plan import OUTSIDE, PUBLISHED, TABLES
from benchmarks.experiments.uci import data as uci_data
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.data import DataUnavailableError, data_dir
from benchmarks.machinery.environments import (
    default_environments,
    environment,
    run_module,
)
from benchmarks.machinery.store import write_atomically

_FILES = ("data.csv.gz", "test_mask.csv.gz")


def prepare(
    names: Sequence[str],
    argument: Path | None,
    cache_dir: Path,
    environments: Path | None = None,
) -> dict[str, Path]:
    """One `.npz` per set below `cache_dir`, made where it does not exist."""
    uci = [name for name in names if name not in TABLES and name not in PUBLISHED]
    paths = uci_data.prepare(uci, argument, cache_dir)
    for name in names:
        if name in PUBLISHED:
            paths[name] = cache_dir / "published" / f"{name}.npz"
            if not paths[name].exists():
                _write_published(name, paths[name], environments)
        if name in TABLES:
            folder = _folder(name, argument)
            path = cache_dir / _fingerprint(folder) / f"{name}.npz"
            if not path.exists():
                write_atomically(path, _read_texts(folder))
            paths[name] = path
    return paths


@cache
def load(path: Path) -> list[Split]:
    """The splits of a set in float64."""
    if path.stem in PUBLISHED:
        with np.load(path) as arrays:
            split = Split(**arrays)
        return [split] * PUBLISHED[path.stem]
    if path.stem not in TABLES:
        return uci_data.load(path)
    with np.load(path) as arrays:
        data, is_test = arrays["data"], arrays["is_test"]
    inputs, targets = data[:, :-1], data[:, -1]
    return [Split(inputs[~m], targets[~m], inputs[m], targets[m]) for m in is_test.T]


def _write_published(name: str, path: Path, environments: Path | None) -> None:
    folder = environments or default_environments()
    python = environment(OUTSIDE["bde"].requirements, folder, library=False)
    ended = run_module(python, "benchmarks.experiments.tables.outside.bde_data", [name, str(path)])
    if ended.code:
        raise DataUnavailableError(f"The set {name!r} could not be read: {ended.errors[-500:]}")


def _folder(name: str, argument: Path | None) -> Path:
    root = data_dir(argument)
    if root is None:
        raise DataUnavailableError(
            f"The set {name!r} is not downloaded. Put it into a folder `tables/{name}` (see "
            "`benchmarks/README.md`) and name the folder that contains `tables` by `--data-dir` "
            "or FISHER8_DATA, or choose UCI sets."
        )
    folder = root / "tables" / name
    missing = [file for file in _FILES if not (folder / file).exists()]
    if missing:
        raise DataUnavailableError(
            f"The data directory must hold `tables/{name}/{missing[0]}`, but {str(folder)!r} has "
            "no such file. Name the folder that contains `tables`."
        )
    return folder


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in _FILES:
        digest.update((folder / file).read_bytes())
    return digest.hexdigest()[:16]


def _read_texts(folder: Path) -> bytes:
    try:
        data, is_test = (np.loadtxt(folder / file, delimiter=",", ndmin=2) for file in _FILES)
    except (OSError, ValueError) as error:
        raise DataUnavailableError(
            f"A file of the set {folder.name!r} cannot be read: {error}"
        ) from error
    if len(data) != len(is_test):
        raise DataUnavailableError(
            f"The set {folder.name!r} has {len(data)} rows, but its splits {len(is_test)}."
        )
    buffer = io.BytesIO()
    np.savez(buffer, data=data, is_test=is_test == 1)
    return buffer.getvalue()
