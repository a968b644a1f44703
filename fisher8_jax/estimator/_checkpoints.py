"""A fit that survives a kill: a folder of training states for every candidate."""

import contextlib
import hashlib
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.training import Method

# Validations between two saved states; a save takes about as long as twenty steps.
_EVERY = 5


def check_folder(folder: Any, random_state: Any) -> Path | None:
    """The folder of `checkpoint_dir`; a fit can only be repeated if its seed can."""
    if folder is None:
        return None
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"`checkpoint_dir` must be a path or None, got {folder!r}.")
    if not isinstance(random_state, numbers.Integral):
        raise ValueError(
            f"`random_state` must be an integer if `checkpoint_dir` is given, got {random_state!r}:"
            " with another seed a killed fit cannot go on."
        )
    return Path(folder)


def describe_fit(arrays: tuple[np.ndarray, ...], **settings: Any) -> dict[str, Any]:
    """What tells a fit from others, in JSON's own types: its settings, and a hash of its data."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return {**settings, "data": digest.hexdigest()[:16]}


@contextlib.contextmanager
def open_checkpoints(
    folder: Path | None, fit: dict[str, Any] | None, family: str, index: int, method: Method
) -> Iterator[TrainingCheckpoints | None]:
    """The states of one candidate; refuses a folder that belongs to another fit."""
    if folder is None:
        yield None
        return
    config = {**(fit or {}), "family": family, "method": method.to_dict()}
    with TrainingCheckpoints(folder / f"{family}-{index}", every=_EVERY, config=config) as states:
        yield states
