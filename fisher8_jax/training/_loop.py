"""The one training loop: steps in one compiled loop, lanes in one `vmap`.

`train_on_batches` is given the batches themselves, so one program serves data of any length, also
data that is not in memory. The number of steps is not part of the program: chunks of a long
training, and trainings of different length, share one.
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

from fisher8_jax.training._step import (
    Batch,
    Lane,
    Leaves,
    Params,
    Readouts,
    Task,
    Variables,
    update,
)


class TrainState(NamedTuple):
    """What changes; every leaf has the lanes as first axis, except the number of steps done.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.training import TrainState
        >>> TrainState(jnp.zeros((2, 3)), None, (), jnp.array(0)).leaves.params.shape
        (2, 3)
    """

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree
    step: Array

    @property
    def leaves(self) -> Leaves:
        """Everything but the number of steps."""
        return Leaves(*self[:3])


def start(task: Task, params: Params, variables: Variables, lanes: Lane) -> TrainState:
    """The state before the first step.

    Args:
        task: network, loss and optimiser.
        params: first parameters, lanes first; `stack_members` makes them of separate trees.
        variables: first variables, lanes first; None if the network has none.
        lanes: settings and keys, lanes first.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.losses import make_objective
        >>> from fisher8_jax.training import Lane, Task, plain_network, start
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> task = Task(network, make_objective("fisher8"), optax.sgd)
        >>> lanes = Lane(jnp.array([0.1, 0.2]), jax.random.split(jax.random.key(0), 2))
        >>> int(start(task, jnp.zeros(2), None, lanes).step)
        0
    """
    params = jax.tree.map(jnp.asarray, params)
    return TrainState(params, variables, _init(task, params, lanes), jnp.zeros((), jnp.int32))


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

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.losses import make_objective
        >>> from fisher8_jax.training import Batch, Lane, Task
        >>> from fisher8_jax.training import plain_network, start, train_on_batches
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> task = Task(network, make_objective("fisher8"), optax.sgd)
        >>> lanes = Lane(jnp.array([0.1, 0.2]), jax.random.split(jax.random.key(0), 2))
        >>> batches = Batch(jnp.ones((5, 2, 4)), jnp.ones((5, 2, 4)))  # steps, lanes, examples
        >>> state = start(task, jnp.zeros(2), None, lanes)
        >>> state, readouts = train_on_batches(task, state, lanes, batches)
        >>> int(state.step), readouts["loss"].shape
        (5, (5, 2))
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
def _init(task, params, lanes):
    def of_lane(params, lane):
        return task.full_optimizer(lane.settings).init(params)

    return jax.vmap(of_lane)(params, lanes)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train_on_batches(task, state, lanes, batches, steps):
    def of_lane(leaves, lane, batch, step):
        return update(task, leaves, lane, batch, step)

    step_all = jax.vmap(of_lane, in_axes=(0, 0, 0, None))

    def run(state, index):
        now = jax.tree.map(lambda leaf: leaf[index], batches)
        return step_all(state.leaves, lanes, now, state.step)

    return _loop(task, run, state, len(batches.targets), steps)


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
