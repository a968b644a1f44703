"""The one training loop: steps in one compiled loop, runs in one `vmap`.

Batches come in one of two ways. `train_on_batches` is given the batches themselves, so one program
serves data of any length, also data that is not in memory. `train` is given whole data sets, the
*data sets*, and the numbers of the rows of each batch. An objective with a state per row needs the second,
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
    Leaves,
    Metrics,
    Params,
    Run,
    Task,
    Variables,
    update,
)


class Datasets(NamedTuple):
    """Training sets, one per entry of the first axis, padded to the same number of rows."""

    inputs: Array
    targets: Array


class Schedule(NamedTuple):
    """What happens at each step; every leaf has the steps as first axis."""

    rows: ArrayLike
    """(steps, data sets, batch): the rows of each step."""
    new_epoch: ArrayLike
    """(steps,): True where memories are renewed."""
    factor: ArrayLike
    """(steps,): given to the optimiser of every run."""
    where: ArrayLike | None = None
    """Like `rows`, False for padding; None if there is none."""

    def chunk(self, first: int, length: int) -> tuple["Schedule", int]:
        """Steps from `first` on, filled up to `length`, and how many of them are to be run."""
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + length], self)
        return pad_steps(part, length), len(part.rows)


class TrainState(NamedTuple):
    """What changes; every leaf has the runs as first axis, except the number of steps done."""

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree
    loss_state: chex.ArrayTree
    step: Array

    @property
    def leaves(self) -> Leaves:
        """Everything but the number of steps."""
        return Leaves(*self[:4])


def start(
    task: Task, params: Params, variables: Variables, runs: Run, datasets: Datasets | None = None
) -> TrainState:
    """The state before the first step.

    Args:
        task: network, loss and optimiser.
        params: first parameters, runs first; `stack_members` makes them of separate trees.
        variables: first variables, runs first; None if the network has none.
        runs: settings and keys, runs first.
        datasets: the training sets, needed by objectives with a state per row.
    """
    params = jax.tree.map(jnp.asarray, params)
    optimizer, loss_state = _start(task, params, variables, runs, datasets)
    return TrainState(params, variables, optimizer, loss_state, jnp.zeros((), jnp.int32))


def train(
    task: Task,
    state: TrainState,
    datasets: Datasets,
    runs: Run,
    schedule: Schedule,
    steps: int | None = None,
) -> tuple[TrainState, Metrics]:
    """Runs the first `steps` of `schedule` (all of them by default) in one compiled call.

    The arrays of `state` are given up to the result: keep no reference to them.

    Returns:
        The new state, and the metrics of every step and run, nan for steps not run.
    """
    steps = np.shape(schedule.rows)[0] if steps is None else steps
    return _train(task, state, datasets, runs, schedule, jnp.asarray(steps, jnp.int32))


def train_on_batches(
    task: Task,
    state: TrainState,
    runs: Run,
    batches: Batch,
    steps: int | None = None,
) -> tuple[TrainState, Metrics]:
    """Runs the first `steps` of `batches` (all of them by default) in one compiled call.

    The arrays of `state` are given up to the result: keep no reference to them.

    Args:
        task: network, loss and optimiser.
        state: from `start`.
        runs: settings and keys, runs first.
        batches: every leaf of shape (steps, runs, batch, ...).
        steps: how many to run; the others are padding.

    Returns:
        The new state, and the metrics of every step and run, nan for steps not run.
    """
    steps = np.shape(batches.targets)[0] if steps is None else steps
    return _train_on_batches(task, state, runs, batches, jnp.asarray(steps, jnp.int32))


def pad_steps(tree: chex.ArrayTree, length: int) -> chex.ArrayTree:
    """Every leaf filled up with zeros to `length` steps."""

    def pad(leaf: ArrayLike) -> np.ndarray:
        array = np.asarray(leaf)
        return np.pad(array, [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1))

    return jax.tree.map(pad, tree)


@functools.partial(jax.jit, static_argnums=0)
def _start(task, params, variables, runs, datasets):
    def of_run(params, variables, run):
        optimizer = task.full_optimizer(run.settings, jnp.ones(()))
        if datasets is None:
            return optimizer.init(params), ()
        dist, _ = task.apply(params, variables, datasets.inputs[run.dataset])
        return optimizer.init(params), task.objective.init(dist)

    return jax.vmap(of_run)(params, variables, runs)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train_on_batches(task, state, runs, batches, steps):
    def of_run(leaves, run, batch, step):
        return update(task, leaves, run, batch, jnp.ones(()), step)

    step_all = jax.vmap(of_run, in_axes=(0, 0, 0, None))

    def advance(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], batches)
        return step_all(state.leaves, runs, now, state.step)

    return _loop(task, advance, state, len(batches.targets), steps)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train(task, state, datasets, runs, schedule, steps):
    step_all = jax.vmap(functools.partial(_step, task, datasets), in_axes=(0, 0, None, None))

    def advance(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], schedule)
        state = _refresh(task, state, datasets, runs, now.new_epoch)
        return step_all(state.leaves, runs, now, state.step)

    return _loop(task, advance, state, len(schedule.rows), steps)


def _loop(
    task: Task,
    advance: Callable[[TrainState, Array], tuple[Leaves, Metrics]],
    state: TrainState,
    length: int,
    steps: Array,
) -> tuple[TrainState, Metrics]:
    """The steps one after the other; metrics are written to their places."""
    runs = len(jax.tree.leaves(state.params)[0])
    empty = {name: jnp.full((length, runs), jnp.nan) for name in task.metric_names}

    def body(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        state, written = carry
        leaves, metrics = advance(state, index)
        written = jax.tree.map(lambda all_, now: all_.at[index].set(now), written, metrics)
        return TrainState(*leaves, state.step + 1), written

    return lax.fori_loop(0, steps, body, (state, empty))


def _refresh(task, state, datasets, runs, new_epoch):
    def of_run(params, variables, loss_state, index):
        dist, _ = task.apply(params, variables, datasets.inputs[index])
        return task.objective.refresh(loss_state, dist)

    def fresh(loss_state):
        return jax.vmap(of_run)(state.params, state.variables, loss_state, runs.dataset)

    return state._replace(
        loss_state=lax.cond(new_epoch, fresh, lambda loss_state: loss_state, state.loss_state)
    )


def _step(task, datasets, leaves, run, now, step):
    """One step of one run, on rows of its data set."""
    rows = now.rows[run.dataset]
    where = None if now.where is None else now.where[run.dataset]
    inputs, targets = (leaf[run.dataset, rows] for leaf in datasets)
    return update(task, leaves, run, Batch(inputs, targets, rows, where), now.factor, step)
