"""States of unfinished trainings on disk, kept by Orbax; an interrupted run goes on from the last.

A checkpoint holds the leaves of a tree. Its structure comes from the program that restores it, so a
state may hold anything JAX knows.
"""

import shutil
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp


class Checkpoints:
    """The newest states of one training; older ones are removed. To be used in a `with` block.

    Args:
        folder: a folder of this training's own, made when the first state is saved.
        keep: how many of the newest states remain.
    """

    def __init__(self, folder: Path | str, *, keep: int = 1):
        self.folder = Path(folder).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(self.folder, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Waits until everything is on disk, also when an error ends the training."""
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, step: int, tree: Any) -> None:
        """Starts to write `tree`; the copy is taken at once, the writing runs beside the training.

        A file becomes visible when it is whole.
        """
        leaves = {"leaves": [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]}
        self._manager.save(step, args=ocp.args.StandardSave(leaves))

    def latest(self) -> int | None:
        """The step of the newest whole state, None if there is none."""
        return self._manager.latest_step()

    def restore(self, step: int, like: Any) -> Any:
        """The state of `step` with the structure, types and placement of `like`."""
        leaves, structure = jax.tree.flatten(like)
        shapes = [jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
        target = ocp.args.StandardRestore({"leaves": shapes})
        restored = self._manager.restore(step, args=target)["leaves"]
        placed = [
            jax.device_put(new, old.sharding) if isinstance(old, jax.Array) else np.asarray(new)
            for new, old in zip(restored, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, placed)

    def remove(self) -> None:
        """Deletes all states, after the `with` block: the training has ended."""
        shutil.rmtree(self.folder, ignore_errors=True)
