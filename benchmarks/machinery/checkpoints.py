"""Unfinished trainings on disk: a second start goes on from the newest state."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.machinery.store import plain
from fisher8_jax.artifacts import ArtifactError, TrainingCheckpoints

State = TypeVar("State")


@contextlib.contextmanager
def resumed(
    folder: Path, spec: Mapping[str, Any], state: State
) -> Iterator[tuple[State, int, Callable[[State, int], None]]]:
    """The newest saved state and the number it was saved with; `state` and 0 if there is none.

    States of another `spec` and folders without an intact state are removed. The third value is
    `save(state, number)`, which writes beside the training. When the block ends without an error
    the training has ended, and its folder is removed.

    Args:
        folder: a folder of this training's own.
        spec: what is being trained.
        state: the first state, any tree of arrays; random keys are not allowed.
    """
    checkpoints, saved, number = _open(folder, spec, state)
    with checkpoints:
        yield saved, number, lambda state, number: checkpoints.save(number, state)
    shutil.rmtree(folder)


def _open(
    folder: Path, spec: Mapping[str, Any], state: State
) -> tuple[TrainingCheckpoints, State, int]:
    checkpoints = None
    try:
        checkpoints = TrainingCheckpoints(folder, config=plain(spec))
        return checkpoints, *(checkpoints.restore(state) or (state, 0))
    except (ArtifactError, ValueError):  # of another spec, damaged, or of another form
        if checkpoints is not None:
            checkpoints.close()
        shutil.rmtree(folder)
        return TrainingCheckpoints(folder, config=plain(spec)), state, 0
