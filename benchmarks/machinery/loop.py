"""The one training loop: steps in one compiled loop, runs in one `vmap`.

Batches come in one of two ways. `train_on_batches` is given the batches themselves, so one program
serves data of any length, also data that is not in memory. `train` is given whole data sets and the
numbers of the rows of each batch. A loss with a state per training row needs the second, because
its state is renewed from the predictions for all rows when an epoch begins.

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
    Params,
    Run,
    Task,
    TrainState,
    Variables,
    init,
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
    """(steps,): True where losses with a state renew it."""
    factor: ArrayLike
    """(steps,): given to the optimiser of every run."""
    where: ArrayLike | None = None
    """Like `rows`, False for padding; None if there is none."""

    def chunk(self, first: int, length: int) -> tuple["Schedule", int]:
        """Steps from `first` on, filled up to `length`, and how many of them are to be run."""
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + length], self)
        return pad_steps(part, length), len(part.rows)


def start(
    task: Task, params: Params, variables: Variables, runs: Run, datasets: Datasets | None = None
) -> TrainState:
    """The state before the first step.

    Args:
        task: network, loss and optimiser.
        params: first parameters, runs first; `networks.stack_members` makes them of separate trees.
        variables: first variables, runs first; None if the network has none.
        runs: settings and keys, runs first.
        datasets: the training sets, needed by objectives with a state per row.
    """
    return _start(task, jax.tree.map(jnp.asarray, params), variables, runs, datasets)


def train(
    task: Task,
    state: TrainState,
    datasets: Datasets,
    runs: Run,
    schedule: Schedule,
    steps: int | None = None,
) -> tuple[TrainState, Array]:
    """Runs the first `steps` of `schedule` (all of them by default) in one compiled call.

    The arrays of `state` are given up to the result: keep no reference to them.

    Returns:
        The new state, and the loss of every step and run, nan for steps not run.
    """
    steps = np.shape(schedule.rows)[0] if steps is None else steps
    return _train(task, state, datasets, runs, schedule, jnp.asarray(steps, jnp.int32))


def train_on_batches(
    task: Task,
    state: TrainState,
    runs: Run,
    batches: Batch,
    steps: int | None = None,
) -> tuple[TrainState, Array]:
    """The same as `train` on batches that are given, leaves of shape (steps, runs, batch, ...)."""
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
        if datasets is None or task.objective is None:
            return init(task, params, variables, run)
        dist, _ = task.apply(params, variables, datasets.inputs[run.dataset])
        return init(task, params, variables, run, task.objective.init(dist))

    return jax.vmap(of_run)(params, variables, runs)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train_on_batches(task, state, runs, batches, steps):
    def of_run(state, run, batch):
        return update(task, state, run, batch, jnp.ones(()))

    def advance(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], batches)
        return jax.vmap(of_run)(state, runs, now)

    return _loop(advance, state, len(batches.targets), steps)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train(task, state, datasets, runs, schedule, steps):
    step_all = jax.vmap(functools.partial(_step, task, datasets), in_axes=(0, 0, None))

    def advance(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], schedule)
        if task.objective is not None:
            state = _refresh(task, state, datasets, runs, now.new_epoch)
        return step_all(state, runs, now)

    return _loop(advance, state, len(schedule.rows), steps)


def _loop(
    advance: Callable[[TrainState, Array], tuple[TrainState, Array]],
    state: TrainState,
    length: int,
    steps: Array,
) -> tuple[TrainState, Array]:
    """The steps one after the other; losses are written to their places."""
    runs = len(jax.tree.leaves(state.params)[0])

    def body(index: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
        state, losses = carry
        state, loss = advance(state, index)
        return state, losses.at[index].set(loss)

    return lax.fori_loop(0, steps, body, (state, jnp.full((length, runs), jnp.nan)))


def _refresh(task, state, datasets, runs, new_epoch):
    def of_run(params, variables, loss_state, index):
        dist, _ = task.apply(params, variables, datasets.inputs[index])
        return task.objective.refresh(loss_state, dist)

    def fresh(loss_state):
        return jax.vmap(of_run)(state.params, state.variables, loss_state, runs.dataset)

    return state._replace(
        loss_state=lax.cond(new_epoch, fresh, lambda loss_state: loss_state, state.loss_state)
    )


def _step(task, datasets, state, run, now):
    """One step of one run, on rows of its data set."""
    rows = now.rows[run.dataset]
    where = None if now.where is None else now.where[run.dataset]
    inputs, targets = (leaf[run.dataset, rows] for leaf in datasets)
    return update(task, state, run, Batch(inputs, targets, where, None, rows), now.factor)
