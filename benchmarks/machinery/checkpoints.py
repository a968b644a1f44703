"""The state of an unfinished training in one file, written atomically and checked when read."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.machinery.store import write_atomically


def save_checkpoint(path: Path, spec: Mapping[str, Any], tree: Any) -> None:
    """Writes the leaves of `tree`; random keys are not allowed, derive them from names."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    buffer = io.BytesIO()
    named: dict[str, Any] = {f"leaf_{i}": leaf for i, leaf in enumerate(leaves)}
    np.savez(buffer, spec=_fingerprint(spec), **named)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, spec: Mapping[str, Any], like: Any) -> Any | None:
    """The saved tree; None if there is none, if it is damaged or of another `spec`.

    Args:
        path: the file.
        spec: what is being trained; a checkpoint of something else is not used.
        like: a tree of the same structure.
    """
    structure = jax.tree.structure(like)
    try:
        with np.load(path) as arrays:  # every member is checked against its CRC
            if str(arrays["spec"]) != _fingerprint(spec):
                return None
            leaves = [arrays[f"leaf_{i}"] for i in range(len(jax.tree.leaves(like)))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return jax.tree.unflatten(structure, leaves)


def _fingerprint(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
