"""Training states that survive `kill -9`: Orbax checkpoints, and a loop that resumes from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax

State = TypeVar("State")


class TrainingCheckpoints:
    """A folder of training states; the newest whole one is restored.

    Orbax writes each state to a temporary folder and renames it when it is complete, so a process
    that is killed at any moment leaves the states before it intact.

    Args:
        folder: made if it does not exist.
        every: the number of steps between two saved states.
        keep: how many of the newest states stay on disk.

    Example:
        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.artifacts import TrainingCheckpoints
        >>> with TrainingCheckpoints(tempfile.mkdtemp(), every=2) as checkpoints:
        ...     state = checkpoints.run(lambda state, step: state + step, jnp.array(0.0), steps=5)
        >>> print(state)
        10.0
    """

    def __init__(self, folder: str | Path, *, every: int, keep: int = 2):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise ImportError(
                "`TrainingCheckpoints` needs Orbax. Install it with `pip install orbax-checkpoint`."
            ) from error
        for name, value in (("every", every), ("keep", keep)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
        self._orbax = ocp
        self._every = every
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(Path(folder).absolute(), options=options)

    def __enter__(self) -> "TrainingCheckpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits until everything is on disk."""
        self._manager.wait_until_finished()
        self._manager.close()

    def restore(self, state: State) -> tuple[State, int]:
        """The newest saved state and the number of steps it has behind it; `state` and 0 if none.

        Args:
            state: a tree like the saved one; its shapes, dtypes and shardings are those restored.
        """
        step = self._manager.latest_step()
        if step is None:
            return state, 0
        template = jax.tree.map(self._orbax.utils.to_shape_dtype_struct, {"state": state})
        arguments = self._orbax.args.StandardRestore(template)
        return self._manager.restore(step, args=arguments)["state"], step

    def save(self, state: Any, step: int) -> None:
        """Saves `state` after `step` steps, in the background."""
        # Wrapped, because Orbax wants a tree and a state may be a single array.
        self._manager.save(step, args=self._orbax.args.StandardSave({"state": state}))

    def run(self, advance: Callable[[State, int], State], state: State, *, steps: int) -> State:
        """Runs steps 0 to `steps`, beginning after the newest saved state.

        The result is the same however often the process was killed and started again, as long as
        `advance` depends on its arguments alone: draw random numbers by `jax.random.fold_in(key,
        step)` and choose batches by the step.

        Args:
            advance: one step (or one compiled chunk of steps), `(state, step) -> state`.
            state: the state before the first step.
            steps: how many in all.

        Returns:
            The state after the last step.
        """
        state, done = self.restore(state)
        for step in range(done, steps):
            state = advance(state, step)
            if (step + 1) % self._every == 0 or step + 1 == steps:
                self.save(state, step + 1)
        return state
