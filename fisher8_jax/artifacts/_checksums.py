"""What a saved state must be made of: the SHA-256 of each file, the form of each array."""

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

# Place, shape and dtype of one array.
Leaf: TypeAlias = list[Any]


def describe(tree: chex.ArrayTree) -> list[Leaf]:
    """Place, shape and dtype of each leaf, in JSON's own types."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [[jax.tree_util.keystr(keys), *_form(leaf)] for keys, leaf in leaves]


def write_checksums(folder: Path, leaves: list[Leaf]) -> None:
    """Leaves a record of all files in `folder`, once they are complete."""
    files = {str(path.relative_to(folder)): _digest(path) for path in _files_below(folder)}
    body = {"files": files, "leaves": leaves}
    content = json.dumps({"sha256": _digest_of(body), **body}, sort_keys=True)
    write_atomically(folder / _NAME, content.encode())


def has_checksums(folder: Path) -> bool:
    """False for a folder whose writer did not get as far."""
    return (folder / _NAME).exists()


def find_damage(folder: Path) -> Path | None:
    """The first file that is missing or not what was written; None if all are."""
    record = _read(folder)
    if record is None:
        return folder / _NAME
    for name, digest in record["files"].items():
        path = folder / name
        if not path.is_file() or _digest(path) != digest:
            return path
    return None


def read_leaves(folder: Path) -> list[Leaf]:
    """What `describe` said of the tree that was saved in an intact folder."""
    record = _read(folder)
    return record["leaves"] if record else []


def _form(leaf: object) -> tuple[list[int], str]:
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return list(leaf.shape), str(leaf.dtype)
    array = np.asarray(leaf)
    return list(array.shape), str(array.dtype)


def _read(folder: Path) -> Json | None:
    try:
        record = json.loads((folder / _NAME).read_bytes())
        return record if record.pop("sha256") == _digest_of(record) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _files_below(folder: Path) -> list[Path]:
    """All but those at the top, notes of Orbax about times, which it still writes to."""
    return sorted(path for path in folder.glob("*/**/*") if path.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(body: Json) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
