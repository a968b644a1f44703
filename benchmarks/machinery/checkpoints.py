"""States of unfinished trainings on disk, damage noticed; an interrupted run goes on from the last.

Small states are one artifact. Large ones are kept by Orbax in a folder.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from benchmarks.machinery.store import plain
from fisher8_jax.artifacts import (
    ArtifactError,
    TrainingCheckpoints,
    load_artifact,
    save_artifact,
)


def save_checkpoint(path: Path, spec: Mapping[str, Any], tree: Any) -> None:
    """Writes the leaves of `tree`; random keys are not allowed, derive them from names."""
    save_artifact(path, {"leaves": jax.tree.leaves(tree)}, config=plain(spec))


def load_checkpoint(path: Path, spec: Mapping[str, Any], like: Any) -> Any | None:
    """The saved tree; None if there is none, if it is damaged or of another `spec`.

    Args:
        path: the file.
        spec: what is being trained; a checkpoint of something else is not used.
        like: a tree of the same structure; arrays may have grown.
    """
    structure = jax.tree.structure(like)
    try:
        artifact = load_artifact(path)
    except (FileNotFoundError, ArtifactError):
        return None
    leaves = artifact.trees.get("leaves", {})
    if artifact.config != plain(spec) or list(leaves) != list(range(len(jax.tree.leaves(like)))):
        return None
    return jax.tree.unflatten(structure, list(leaves.values()))


def open_checkpoints(folder: Path, spec: Mapping[str, Any]) -> TrainingCheckpoints:
    """The states of one large training; those of another `spec` in that folder are removed.

    Args:
        folder: a folder of this training's own.
        spec: what is being trained.
    """
    try:
        return TrainingCheckpoints(folder, every=1, config=plain(spec))
    except ValueError:
        shutil.rmtree(folder)
        return TrainingCheckpoints(folder, every=1, config=plain(spec))
