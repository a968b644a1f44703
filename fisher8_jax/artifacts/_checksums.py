"""What a saved state consists of: the SHA-256 of each file, the shape and dtype of each array."""

import hashlib
import json
from pathlib import Path
from typing import Any, TypeAlias

import chex
import jax
import numpy as np

from fisher8_jax._internal.files import write_atomically
from fisher8_jax.artifacts._json import Json

_NAME = "checksums.json"

# Path, shape and dtype of one array, in JSON's own types.
Leaf: TypeAlias = list[Any]


def describe(tree: chex.ArrayTree) -> list[Leaf]:
    """Every leaf of `tree`."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    # A struct and a key have no NumPy array.
    arrays = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for _, leaf in leaves]
    return [
        [jax.tree_util.keystr(keys), list(array.shape), str(array.dtype)]
        for (keys, _), array in zip(leaves, arrays, strict=True)
    ]


def write_checksums(folder: Path, leaves: list[Leaf]) -> None:
    """Records all files in `folder`, once they are complete; does nothing if that was done."""
    if (folder / _NAME).exists():
        return
    # The files at the top are notes of Orbax about times, which it still writes to.
    paths = sorted(path for path in folder.glob("*/**/*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in paths}
    body = {"files": files, "leaves": leaves}
    write_atomically(folder / _NAME, json.dumps({"sha256": _digest_of(body), **body}).encode())


def find_damage(folder: Path) -> Path | None:
    """The first file that is missing or not what was written; None if all are intact."""
    record = _read(folder)
    if record is None:
        return folder / _NAME
    paths = {folder / name: digest for name, digest in record["files"].items()}
    return next((p for p, digest in paths.items() if not p.is_file() or _digest(p) != digest), None)


def read_leaves(folder: Path) -> list[Leaf]:
    """What `describe` said of the tree that was saved in an intact folder."""
    record = _read(folder)
    return record["leaves"] if record else []


def _read(folder: Path) -> Json | None:
    try:
        record = json.loads((folder / _NAME).read_bytes())
        return record if record.pop("sha256") == _digest_of(record) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(body: Json) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
