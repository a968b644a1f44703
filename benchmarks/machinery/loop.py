"""The one training loop: steps in one compiled loop, lanes in one `vmap`.

Batches come in one of two ways. `train_on_batches` is given the batches themselves, so one program
serves data of any length, also data that is not in memory. `train` is given whole data sets, the
*sources*, and the numbers of the rows of each batch. An objective with a memory needs the second,
because its memory is renewed from the predictions for all rows when an epoch begins.

The number of steps is not part of either program: chunks of a long training, and trainings of
different length, share one.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from benchmarks.machinery.step import (
    Batch,
    Lane,
    Leaves,
    Params,
    Readouts,
    Task,
    Variables,
    update,
)


class Sources(NamedTuple):
    """Training sets, one per entry of the first axis, padded to the same number of rows."""

    inputs: Array
    targets: Array


class Schedule(NamedTuple):
    """What happens at each step; every leaf has the steps as first axis."""

    rows: ArrayLike
    """(steps, sources, batch): the rows of each step."""
    new_epoch: ArrayLike
    """(steps,): True where memories are renewed."""
    factor: ArrayLike
    """(steps,): given to the optimiser of every lane."""
    where: ArrayLike | None = None
    """Like `rows`, False for padding; None if there is none."""

    def chunk(self, first: int, length: int) -> tuple["Schedule", int]:
        """Steps from `first` on, filled up to `length`, and how many of them are to be run."""
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + length], self)
        return pad_steps(part, length), len(part.rows)


class TrainState(NamedTuple):
    """What changes; every leaf has the lanes as first axis, except the number of steps done."""

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree
    memory: chex.ArrayTree
    step: Array

    @property
    def leaves(self) -> Leaves:
        """Everything but the number of steps."""
        return Leaves(*self[:4])


def start(
    task: Task, params: Params, variables: Variables, lanes: Lane, sources: Sources | None = None
) -> TrainState:
    """The state before the first step.

    Args:
        task: network, loss and optimiser.
        params: first parameters, lanes first; `stack_members` makes them of separate trees.
        variables: first variables, lanes first; None if the network has none.
        lanes: settings and keys, lanes first.
        sources: the training sets, needed by objectives with a memory.
    """
    params = jax.tree.map(jnp.asarray, params)
    optimizer, memory = _start(task, params, variables, lanes, sources)
    return TrainState(params, variables, optimizer, memory, jnp.zeros((), jnp.int32))


def train(
    task: Task,
    state: TrainState,
    sources: Sources,
    lanes: Lane,
    schedule: Schedule,
    steps: int | None = None,
) -> tuple[TrainState, Readouts]:
    """Runs the first `steps` of `schedule` (all of them by default) in one compiled call.

    The arrays of `state` are given up to the result: keep no reference to them.

    Returns:
        The new state, and the readouts of every step and lane, nan for steps not run.
    """
    steps = np.shape(schedule.rows)[0] if steps is None else steps
    return _train(task, state, sources, lanes, schedule, jnp.asarray(steps, jnp.int32))


def train_on_batches(
    task: Task,
    state: TrainState,
    lanes: Lane,
    batches: Batch,
    steps: int | None = None,
) -> tuple[TrainState, Readouts]:
    """Runs the first `steps` of `batches` (all of them by default) in one compiled call.

    The arrays of `state` are given up to the result: keep no reference to them.

    Args:
        task: network, loss and optimiser.
        state: from `start`.
        lanes: settings and keys, lanes first.
        batches: every leaf of shape (steps, lanes, batch, ...).
        steps: how many to run; the others are padding.

    Returns:
        The new state, and the readouts of every step and lane, nan for steps not run.
    """
    steps = np.shape(batches.targets)[0] if steps is None else steps
    return _train_on_batches(task, state, lanes, batches, jnp.asarray(steps, jnp.int32))


def pad_steps(tree: chex.ArrayTree, length: int) -> chex.ArrayTree:
    """Every leaf filled up with zeros to `length` steps."""

    def pad(leaf: ArrayLike) -> np.ndarray:
        array = np.asarray(leaf)
        return np.pad(array, [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1))

    return jax.tree.map(pad, tree)


@functools.partial(jax.jit, static_argnums=0)
def _start(task, params, variables, lanes, sources):
    def of_lane(params, variables, lane):
        optimizer = task.full_optimizer(lane.settings, jnp.ones(()))
        if sources is None:
            return optimizer.init(params), ()
        dist, _ = task.apply(params, variables, sources.inputs[lane.source])
        return optimizer.init(params), task.objective.init(dist)

    return jax.vmap(of_lane)(params, variables, lanes)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train_on_batches(task, state, lanes, batches, steps):
    def of_lane(leaves, lane, batch, step):
        return update(task, leaves, lane, batch, jnp.ones(()), step)

    step_all = jax.vmap(of_lane, in_axes=(0, 0, 0, None))

    def run(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], batches)
        return step_all(state.leaves, lanes, now, state.step)

    return _loop(task, run, state, len(batches.targets), steps)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train(task, state, sources, lanes, schedule, steps):
    step_all = jax.vmap(functools.partial(_step, task, sources), in_axes=(0, 0, None, None))

    def run(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], schedule)
        state = _refresh(task, state, sources, lanes, now.new_epoch)
        return step_all(state.leaves, lanes, now, state.step)

    return _loop(task, run, state, len(schedule.rows), steps)


def _loop(
    task: Task,
    run: Callable[[TrainState, Array], tuple[Leaves, Readouts]],
    state: TrainState,
    length: int,
    steps: Array,
) -> tuple[TrainState, Readouts]:
    """The steps one after the other; readouts are written to their places."""
    lanes = len(jax.tree.leaves(state.params)[0])
    empty = {name: jnp.full((length, lanes), jnp.nan) for name in task.readout_names}

    def body(index: Array, carry: tuple[TrainState, Readouts]) -> tuple[TrainState, Readouts]:
        state, written = carry
        leaves, readouts = run(state, index)
        written = jax.tree.map(lambda all_, now: all_.at[index].set(now), written, readouts)
        return TrainState(*leaves, state.step + 1), written

    return lax.fori_loop(0, steps, body, (state, empty))


def _refresh(task, state, sources, lanes, new_epoch):
    def of_lane(params, variables, memory, index):
        dist, _ = task.apply(params, variables, sources.inputs[index])
        return task.objective.refresh(memory, dist)

    def fresh(memory):
        return jax.vmap(of_lane)(state.params, state.variables, memory, lanes.source)

    return state._replace(memory=lax.cond(new_epoch, fresh, lambda memory: memory, state.memory))


def _step(task, sources, leaves, lane, now, step):
    """One step of one lane, on rows of its source."""
    rows = now.rows[lane.source]
    where = None if now.where is None else now.where[lane.source]
    inputs, targets = (leaf[lane.source, rows] for leaf in sources)
    return update(task, leaves, lane, Batch(inputs, targets, rows, where), now.factor, step)
