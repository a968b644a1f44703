"""Training states that survive `kill -9`: Orbax's checkpoints, with checksums, one run a folder."""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import chex
import jax
import numpy as np
from jax.experimental import multihost_utils

from fisher8_jax._internal.checks import check_count
from fisher8_jax._internal.extras import needs_extra
from fisher8_jax._internal.files import lock_folder, write_atomically
from fisher8_jax.artifacts._json import ArtifactError, Json, check_json

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
    files = {path.relative_to(folder).as_posix(): _file_digest(path) for path in paths}
    body = {"files": files, "leaves": leaves}
    write_atomically(folder / _NAME, json.dumps({"sha256": _digest_of(body), **body}).encode())


def find_damage(folder: Path) -> Path | None:
    """The first file that is missing or not what was written; None if all are intact."""
    record = _read_record(folder)
    if record is None:
        return folder / _NAME
    paths = {folder / name: digest for name, digest in record["files"].items()}
    return next(
        (p for p, digest in paths.items() if not p.is_file() or _file_digest(p) != digest), None
    )


def read_leaves(folder: Path) -> list[Leaf]:
    """What `describe` said of the tree that was saved in an intact folder."""
    record = _read_record(folder)
    return record["leaves"] if record else []


def _read_record(folder: Path) -> Json | None:
    try:
        record = json.loads((folder / _NAME).read_bytes())
        return record if record.pop("sha256") == _digest_of(record) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(body: Json) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


State = TypeVar("State")

_RUN = "run.json"


class TrainingCheckpoints:
    """A folder of training states; the newest intact one is restored.

    Orbax writes each state to a temporary folder and renames it when it is complete, so a process
    that is killed at any moment leaves the states before it intact. Each file of a state has a
    checksum; a damaged state is named in a warning, and the one before it is restored.

    A folder belongs to one run. It holds the run's configuration, and one process at a time writes
    to it (of several processes of one `jax.distributed` run all do); others may restore, also from
    a folder that they may only read.

    A loop ends with the same bits however often it was killed and started again if each step
    depends on the state and the step number alone: draw random numbers by `jax.random.fold_in(key,
    step)` and choose batches by the step.

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
        >>> folder, state = tempfile.mkdtemp(), jnp.array(0.0)
        >>> with TrainingCheckpoints(folder, every=2, config={"seed": 0}) as checkpoints:
        ...     state, start = checkpoints.restore(state) or (state, 0)
        ...     for step in range(start, 4):
        ...         state = state + step
        ...         checkpoints.save(step + 1, state)
        ...     print(checkpoints.restore(state))
        (Array(6., dtype=float32), 4)
    """

    def __init__(
        self, folder: str | Path, *, every: int = 1, keep: int = 2, config: Json | None = None
    ):
        with needs_extra("checkpoints", package="orbax", needed_by="TrainingCheckpoints"):
            import orbax.checkpoint as ocp
        self._orbax, self._every = ocp, check_count("every", every)
        keep = check_count("keep", keep)
        self._folder, self._config = Path(folder).absolute(), check_json(config or {})
        self._check_run()
        self._folder.mkdir(parents=True, exist_ok=True)
        # Held until `close` or the end of the process, also by kill -9.
        self._lock = lock_folder(self._folder) if jax.process_index() == 0 else None
        self._is_writer = self._lock is not None or jax.process_index() > 0
        self._saving: tuple[int, list[Leaf]] = (0, [])
        self._unusable: set[int] = set()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            read_only=not self._is_writer,
            cleanup_tmp_directories=self._is_writer,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._write_checksums),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)
        if self._lock is not None:
            write_atomically(self._folder / _RUN, json.dumps({"config": self._config}).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits until everything is on disk."""
        try:
            self._manager.close()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def restore(self, template: State) -> tuple[State, int] | None:
        """The newest intact state and the number of steps before it; None if nothing was saved.

        Args:
            template: a tree like the saved one; its shapes, dtypes and shardings are restored.

        Raises:
            ArtifactError: there are states, and all are damaged.
            ValueError: the saved state has another structure, other shapes or dtypes.
        """
        self._manager.wait_until_finished()
        step = self._newest_intact()
        if step is None:
            return None
        self._check_form(template, step)
        forms = jax.tree.map(self._orbax.utils.to_shape_dtype_struct, {"state": template})
        restored = self._manager.restore(step, args=self._orbax.args.StandardRestore(forms))
        return restored["state"], step

    def save(self, step: int, state: chex.ArrayTree) -> None:
        """Saves `state` after `step` steps in the background, if `step` is a multiple of `every`.

        What goes wrong in the background (a full disk) is raised by the next call or `close`.
        """
        if step % self._every:
            return
        if not self._is_writer:
            raise RuntimeError(
                f"{str(self._folder)!r} is read-only, or another `TrainingCheckpoints` writes to "
                "it, in this process or another one. Until that is closed, states can only be "
                "restored."
            )
        self._manager.wait_until_finished()
        for unusable in sorted(self._unusable & set(self._manager.all_steps())):
            self._manager.delete(unusable)
        newest = self._manager.latest_step()
        if newest is not None and step <= newest:
            raise ValueError(
                f"`step` must be larger than that of the newest state in {str(self._folder)!r}, "
                f"{newest}, got {step}."
            )
        self._saving = step, describe(state)
        # Wrapped, because Orbax wants a tree and a state may be a single array.
        self._manager.save(step, args=self._orbax.args.StandardSave({"state": state}))

    def _newest_intact(self) -> int | None:
        """The step to restore, the same on every process; a damaged state is reported once."""
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
        step, leaves = self._saving
        for folder in (*self._folder.glob(f"{step}.*"), self._folder / str(step)):
            if folder.is_dir() and jax.process_index() == 0:
                write_checksums(folder, leaves)

    def _check_run(self) -> None:
        path = self._folder / _RUN
        try:
            belongs = dict(json.loads(path.read_bytes())["config"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"{str(path)!r} is damaged. It says which run the states beside it belong to; "
                "remove it if you know."
            ) from error
        if belongs != self._config:
            raise ValueError(
                f"{str(self._folder)!r} belongs to another run, "
                f"{_difference(belongs, self._config)}. Give each run a folder of its "
                "own."
            )

    def _check_form(self, template: chex.ArrayTree, step: int) -> None:
        wanted, saved = describe(template), read_leaves(self._folder / str(step))
        differing = [pair for pair in zip(wanted, saved, strict=False) if pair[0] != pair[1]]
        if differing or len(wanted) != len(saved):
            ours, theirs = map(_text, differing[0]) if differing else (len(wanted), len(saved))
            raise ValueError(
                f"The state after {step} steps in {str(self._folder)!r} has {theirs} where the "
                f"template has {ours}{'' if differing else ' arrays'}. It is of another model or "
                "optimizer."
            )


def _difference(belongs: Json, config: Json) -> str:
    """What tells two runs apart, and no more: a configuration may be long."""
    names = [name for name in {**belongs, **config} if belongs.get(name) != config.get(name)]
    parts = [
        f"`{name}` {belongs.get(name)!r} there and {config.get(name)!r} here" for name in names
    ]
    return f"with {', '.join(parts)}"


def _text(leaf: Leaf) -> str:
    path, shape, dtype = leaf
    return f"{dtype}{shape} at {path or 'the root'}"
