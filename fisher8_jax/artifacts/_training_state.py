"""Training states that survive `kill -9`: Orbax checkpoints, and a loop that resumes from them."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import chex
import jax
from jax.experimental import multihost_utils

from fisher8_jax._internal.checks import check_count
from fisher8_jax._internal.extras import needs_extra
from fisher8_jax._internal.files import lock, write_atomically
from fisher8_jax.artifacts._checksums import (
    Leaf,
    describe,
    find_damage,
    has_checksums,
    read_leaves,
    write_checksums,
)
from fisher8_jax.artifacts._format import ArtifactError
from fisher8_jax.artifacts._json import Json, check_json

State = TypeVar("State")

_RUN = "run.json"


class TrainingCheckpoints:
    """A folder of training states; the newest intact one is restored.

    Orbax writes each state to a temporary folder and renames it when it is complete, so a process
    that is killed at any moment leaves the states before it intact. Each file of a state has a
    checksum; a damaged state is named in a warning, and the one before it is restored.

    A folder belongs to one run. It holds the run's configuration, and one process at a time writes
    to it (of several processes of one `jax.distributed` run all do); others may restore.

    Args:
        folder: made if it does not exist.
        every: the number of steps between two saved states.
        keep: how many of the newest states stay on disk.
        config: what tells this run from others, plain JSON: seed, learning rate, data. A folder
            that holds the states of another configuration is refused.

    Example:
        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.artifacts import TrainingCheckpoints
        >>> folder = tempfile.mkdtemp()
        >>> with TrainingCheckpoints(folder, every=2, config={"seed": 0}) as checkpoints:
        ...     state = checkpoints.run(lambda state, step: state + step, jnp.array(0.0), steps=5)
        >>> print(state)
        10.0
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every: int,
        keep: int = 2,
        config: Json | None = None,
    ):
        with needs_extra("checkpoints", package="orbax", needed_by="TrainingCheckpoints"):
            import orbax.checkpoint as ocp
        self._orbax, self._every = ocp, check_count("every", every)
        keep = check_count("keep", keep)
        self._folder = Path(folder).absolute()
        self._config = check_json(config)
        self._check_run()
        self._folder.mkdir(parents=True, exist_ok=True)
        # Held until `close` or the end of the process, also by kill -9.
        self._handle = os.open(self._folder, os.O_RDONLY)
        self._is_writer = jax.process_index() > 0 or lock(self._handle)
        self._saving: list[Leaf] = []
        self._unusable: set[int] = set()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            read_only=not self._is_writer,
            cleanup_tmp_directories=self._is_writer,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._write_checksums),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)
        if self._is_writer and jax.process_index() == 0:
            write_atomically(self._folder / _RUN, json.dumps({"config": self._config}).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits until everything is on disk."""
        try:
            self._manager.wait_until_finished()
            self._manager.close()
        finally:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def remove(self) -> None:
        """Deletes the folder: the training has ended, and its result is kept elsewhere."""
        self._check_writer()
        if self._handle >= 0:
            self.close()
        shutil.rmtree(self._folder)

    def restore(self, state: State) -> tuple[State, int]:
        """The newest intact state and the number of steps behind it; `state` and 0 if none.

        Args:
            state: a tree like the saved one; its shapes, dtypes and shardings are those restored.

        Raises:
            ArtifactError: there are states, and all are damaged.
            ValueError: the saved state has another structure, other shapes or dtypes.
        """
        step = self._newest_intact()
        if step is None:
            return state, 0
        self._check_form(state, step)
        template = jax.tree.map(self._orbax.utils.to_shape_dtype_struct, {"state": state})
        arguments = self._orbax.args.StandardRestore(template)
        return self._manager.restore(step, args=arguments)["state"], step

    def save(self, state: chex.ArrayTree, step: int) -> None:
        """Saves `state` after `step` steps, in the background."""
        self._check_writer()
        self._manager.wait_until_finished()
        for unusable in sorted(self._unusable & set(self._manager.all_steps())):
            self._manager.delete(unusable)
        newest = self._manager.latest_step()
        if newest is not None and step <= newest:
            raise ValueError(
                f"`step` must be larger than that of the newest state in {str(self._folder)!r}, "
                f"{newest}, got {step}."
            )
        self._saving = describe(state)
        # Wrapped, because Orbax wants a tree and a state may be a single array.
        self._manager.save(step, args=self._orbax.args.StandardSave({"state": state}))

    def run(self, advance: Callable[[State, int], State], state: State, *, steps: int) -> State:
        """Runs steps 0 to `steps`, beginning after the newest intact state.

        The result is the same however often the process was killed and started again, as long as
        `advance` depends on its arguments alone: draw random numbers by `jax.random.fold_in(key,
        step)` and choose batches by the step.

        Args:
            advance: one step (or one compiled chunk of steps), `(state, step) -> state`.
            state: the state before the first step.
            steps: how many in all. A folder that holds more steps already is refused.

        Returns:
            The state after the last step.
        """
        self._check_writer()
        state, done = self.restore(state)
        if done > steps:
            raise ValueError(
                f"{str(self._folder)!r} already holds a state after {done} steps of "
                f"{_run_name(self._config)}, and `steps` is {steps}. Give a shorter run a folder "
                f"of its own, or pass at least {done} steps."
            )
        for step in range(done, steps):
            state = advance(state, step)
            if (step + 1) % self._every == 0 or step + 1 == steps:
                self.save(state, step + 1)
        return state

    def _newest_intact(self) -> int | None:
        """The step to restore, the same on every process; earlier finds are not looked at again."""
        found = None
        for step in sorted(set(self._manager.all_steps()) - self._unusable, reverse=True):
            if self._is_intact(step):
                found = step
                break
            self._unusable.add(step)
        if jax.process_count() > 1:
            agreed = int(multihost_utils.broadcast_one_to_all(-1 if found is None else found))
            self._unusable |= {step for step in self._manager.all_steps() if step > agreed}
            found = None if agreed < 0 else agreed
        if found is None and self._unusable:
            raise ArtifactError(
                f"{str(self._folder)!r} holds no intact state. Restore the folder from a copy, or "
                "remove it to begin anew."
            )
        return found

    def _is_intact(self, step: int) -> bool:
        damaged = find_damage(self._folder / str(step))
        if damaged is not None:
            warnings.warn(
                f"{str(damaged)!r} is damaged or missing: the state after {step} steps is not "
                "used, but one before it.",
                stacklevel=4,
            )
        return damaged is None

    def _write_checksums(self) -> None:
        """Called by Orbax when a state is complete; before it is renamed or right after."""
        if jax.process_index() > 0:
            return
        for folder in self._folder.iterdir():
            if folder.is_dir() and not has_checksums(folder):
                write_checksums(folder, self._saving)

    def _check_run(self) -> None:
        try:
            belongs = json.loads((self._folder / _RUN).read_bytes())["config"]
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"{str(self._folder / _RUN)!r} is damaged. It says which run the states beside it "
                "belong to; remove it if you know."
            ) from error
        if belongs != self._config:
            raise ValueError(
                f"{str(self._folder)!r} belongs to another run, "
                f"{_difference(belongs, self._config)}. Give each run a folder of its own."
            )

    def _check_form(self, state: chex.ArrayTree, step: int) -> None:
        wanted, saved = describe(state), read_leaves(self._folder / str(step))
        for ours, theirs in zip(wanted, saved, strict=False):
            if ours != theirs:
                raise ValueError(
                    f"The state after {step} steps in {str(self._folder)!r} has {_text(theirs)} "
                    f"where `state` has {_text(ours)}. It is of another model or optimiser."
                )
        if len(wanted) != len(saved):
            raise ValueError(
                f"The state after {step} steps in {str(self._folder)!r} has {len(saved)} arrays, "
                f"`state` has {len(wanted)}. It is of another model or optimiser."
            )

    def _check_writer(self) -> None:
        if not self._is_writer:
            raise RuntimeError(
                f"Another `TrainingCheckpoints` writes to {str(self._folder)!r}, in this process "
                "or another one. Close it first; until then states can only be restored."
            )


def _run_name(config: Json | None) -> str:
    return "a run without a `config`" if config is None else f"the run {json.dumps(config)}"


def _difference(belongs: Json | None, config: Json | None) -> str:
    """What tells two runs apart, and no more: a configuration may be long."""
    if not isinstance(belongs, dict) or config is None:
        return f"{_run_name(belongs)}; this is {_run_name(config)}"
    names = [name for name in {**belongs, **config} if belongs.get(name) != config.get(name)]
    parts = [
        f"`{name}` {belongs.get(name)!r} there and {config.get(name)!r} here" for name in names
    ]
    return f"with {', '.join(parts)}"


def _text(leaf: Leaf) -> str:
    place, shape, dtype = leaf
    return f"{dtype}{shape} at {place or 'the root'}"
