"""One step of one training, by the library's `Method.update`.

A *task* is what is fixed while compiling: the network and, from numbers that may differ between
runs, the method. A *run* is one training: those numbers (its *settings*), its key, its data set.
Nothing that a run computes depends on other runs, so a step of many is one `jax.vmap`.

What this adds to the library's step: the factor of a schedule that is drawn beforehand, losses with
a state per training row, and an average of the parameters.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import chex
import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.machinery.losses.objective import Objective
from fisher8_jax.families import Family
from fisher8_jax.optimizers import AverageState
from fisher8_jax.training import Data, Method, TrainingState

Params: TypeAlias = chex.ArrayTree
Variables: TypeAlias = chex.ArrayTree
Settings: TypeAlias = chex.ArrayTree


class Batch(NamedTuple):
    """The examples of one step: those of the library's `Data`, and where they come from."""

    inputs: chex.ArrayTree
    targets: chex.Array
    where: chex.Array | None = None
    weights: chex.Array | None = None
    rows: chex.Array | None = None
    """The examples' positions in the training set, for losses with a state per row."""


class Apply(Protocol):
    """What the loop asks of a network; hashable, so that compiled programs are found again."""

    def __call__(
        self,
        params: Params,
        variables: Variables,
        inputs: chex.ArrayTree,
        *,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Family, Variables]:
        """The predicted distribution, and the variables (running statistics) after the pass."""
        ...


@dataclasses.dataclass(frozen=True)
class _Plain:
    predict: Callable[[Params, chex.ArrayTree], Family]

    def __call__(
        self, params: Params, variables: Variables, inputs: chex.ArrayTree, **ignored: object
    ) -> tuple[Family, Variables]:
        return self.predict(params, inputs), variables


def plain_network(predict: Callable[[Params, chex.ArrayTree], Family]) -> Apply:
    """A network that is a pure function of parameters and inputs."""
    return _Plain(predict)


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything that is fixed while compiling; all fields are hashable.

    Args:
        apply: the network.
        method: from a run's settings and the schedule's factor at this step. Ignore the factor if
            the method has a schedule of its own.
        num_steps: the number of steps of that schedule, from a run's settings.
        objective: the loss, if it needs a state per training row or a key; see `with_rows`.
        average: the number of steps that an average of the parameters covers, from a run's
            settings; None for no average.
    """

    apply: Apply
    method: Callable[[Settings, Array], Method]
    num_steps: Callable[[Settings], int | Array] = lambda settings: 1
    objective: Objective | None = None
    average: Callable[[Settings], float | Array] | None = None


class Run(NamedTuple):
    """What stays the same along a training; stacked, every leaf has the runs as first axis."""

    settings: Settings
    key: Array
    dataset: chex.Array | None = None
    """The index of the data set, see `Datasets`; None if batches are given."""


class TrainState(NamedTuple):
    """What a step changes; of several runs, every leaf has them as first axis."""

    training: TrainingState
    loss_state: chex.ArrayTree = ()
    """What the loss keeps per training row; () for most."""
    averaged: AverageState | None = None

    @property
    def params(self) -> Params:
        return self.training.params

    @property
    def kept(self) -> Params:
        """The average of the parameters if there is one, else the last ones."""
        if self.averaged is None:
            return self.params
        average = self.averaged.average
        return jax.tree.map(lambda mean, leaf: mean.astype(leaf.dtype), average, self.params)

    @property
    def variables(self) -> Variables:
        return self.training.variables

    @property
    def optimizer(self) -> chex.ArrayTree:
        return self.training.optimizer

    @property
    def step(self) -> Array:
        """The number of steps made, the same for all runs."""
        return self.training.step.ravel()[0]


def init(
    task: Task, params: Params, variables: Variables, run: Run, loss_state: chex.ArrayTree = ()
) -> TrainState:
    """The state of one run before its first step."""
    method = task.method(run.settings, jnp.ones(()))
    training = method.init(params, task.num_steps(run.settings), variables)
    average = None if task.average is None else AverageState.start(params)
    return TrainState(training, loss_state, average)


def update(
    task: Task, state: TrainState, run: Run, batch: Batch, factor: Array
) -> tuple[TrainState, Array]:
    """One step of one run on a batch that is at hand; the new state and the loss.

    Args:
        task: network and method.
        state: from `init` or the step before.
        run: its settings and key; with the number of steps the key gives that of this step.
        batch: the examples.
        factor: the schedule's, given to `task.method`.
    """
    key = jax.random.fold_in(run.key, state.training.step)
    data = Data(*batch[:4])
    if task.objective is not None:
        data = data._replace(targets=(batch.targets, batch.rows, key, state.loss_state))
    method = task.method(run.settings, factor)
    training, info = method.update(_network(task, state), state.training, data, key=key)
    average = state.averaged
    if average is not None:
        assert task.average is not None
        average = average.add(training.params, task.average(run.settings))
    return TrainState(training, state.loss_state, average), info.loss


def with_rows(objective: Objective) -> Callable[..., Array]:
    """The loss for a library that knows neither state nor key: both are among its targets."""

    def loss(dist, targets, **masks):
        targets, rows, key, loss_state = targets
        return objective.values(loss_state, dist, targets, indices=rows, key=key, **masks)

    return loss


def without_rows(objective: Objective) -> Callable[..., Array]:
    """The loss for the library if it needs neither state nor key."""

    def loss(dist, targets, **masks):
        return objective.values((), dist, targets, indices=None, key=None, **masks)

    return loss


def _network(task: Task, state: TrainState) -> Callable:
    """The library calls networks without variables with parameters and inputs alone."""
    if state.variables is not None:
        return task.apply
    return lambda params, inputs: task.apply(params, None, inputs, train=True)[0]
