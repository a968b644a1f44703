"""One training step as a pure function of a task, a run and a batch.

Three words are used throughout this room:

* A *task* is what is fixed while compiling: the network, the loss, the optimiser.
* A *run* is one training: its parameters, its key and its *settings*, numbers such as a learning
  rate that may differ between runs and change without compiling again.
* *Metrics* are scalars of a step that are written down: its loss, its KL divergence.

Nothing that a run computes depends on other runs, so a step of many runs is one `jax.vmap`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import chex
import jax
import optax
from jax import Array

from fisher8_jax.curvature import NetworkGradient
from fisher8_jax.families import Family
from fisher8_jax.losses import Objective
from fisher8_jax.optimizers import track_average

Params: TypeAlias = chex.ArrayTree
Variables: TypeAlias = chex.ArrayTree
Settings: TypeAlias = chex.ArrayTree
Metrics: TypeAlias = dict[str, Array]


class Batch(NamedTuple):
    """The examples of one step."""

    inputs: chex.ArrayTree
    """Whatever the network takes; a tree of arrays with the examples first."""
    targets: chex.Array
    rows: chex.Array | None = None
    """The examples' places in the training set, for objectives with a memory."""
    where: chex.Array | None = None
    """Boolean, False for padding and missing targets; the rank of the predictions."""
    weights: chex.Array | None = None
    """The importance of each element; the rank of the predictions."""


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
        self,
        params: Params,
        variables: Variables,
        inputs: chex.ArrayTree,
        *,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Family, Variables]:
        return self.predict(params, inputs), variables


def plain_network(predict: Callable[[Params, chex.ArrayTree], Family]) -> Apply:
    """A network that is a pure function of parameters and inputs."""
    return _Plain(predict)


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything that is fixed while compiling; all fields are hashable.

    Args:
        apply: the network, see `Apply`; `plain_network` and `nnx_network` make one.
        objective: the loss with its state and randomness, see `make_objective` or
            `Objective`.
        optimizer: an Optax transformation from a run's settings and the schedule's factor at this
            step. Ignore the factor if the transformation counts its steps itself.
        natural: loss and natural gradient of the whole network on a batch, `(params, batch,
            settings, optimizer state) -> NetworkGradient`, as `network_gradient` computes them; the
            optimiser is told the divergence of the step (`step_kl`) and its second moments
            (`moments`). None differentiates the objective.
        penalty: a scalar of the parameters that is added to the loss; None for none.
        average: how many steps the average of the parameters looks back; None keeps none.
        metrics: more scalars to write down: pairs of a name and a function of the predictions
            before the step and the optimiser state after it.
    """

    apply: Apply
    objective: Objective
    optimizer: Callable[[Settings, Array], optax.GradientTransformation]
    natural: Callable[[Params, Batch, Settings, chex.ArrayTree], NetworkGradient] | None = None
    penalty: Callable[[Params], Array] | None = None
    average: float | None = None
    metrics: tuple[tuple[str, Callable[[Family, chex.ArrayTree], Array]], ...] = ()

    def __post_init__(self) -> None:
        if self.natural is not None and self.penalty is not None:
            raise ValueError(
                "`penalty` is part of the loss that is differentiated, and `natural` takes its "
                "place: give one of them, and let the optimiser shrink parameters, as "
                "`optax.add_decayed_weights` does."
            )

    def full_optimizer(
        self, settings: Settings, factor: Array
    ) -> optax.GradientTransformationExtraArgs:
        """The optimiser, and behind it the average of the parameters."""
        optimizer = self.optimizer(settings, factor)
        if self.average is not None:
            optimizer = optax.chain(optimizer, track_average(self.average))
        return optax.with_extra_args_support(optimizer)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `update` writes down at each step."""
        return ("loss", *(name for name, _ in self.metrics))

    def judged(self, params: Params, optimizer_state: chex.ArrayTree) -> Params:
        """The parameters that are judged and kept: the average if there is one."""
        if self.average is None:
            return params
        average = optax.tree_utils.tree_get(optimizer_state, "average")
        return jax.tree.map(lambda mean, leaf: mean.astype(leaf.dtype), average, params)


class Leaves(NamedTuple):
    """What a step changes, of one run or with the runs as first axis of every leaf."""

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree
    loss_state: chex.ArrayTree
    """What the objective keeps per training row; () for most."""


class Run(NamedTuple):
    """What stays the same along a training; stacked, every leaf has the runs as first axis."""

    settings: Settings
    key: Array
    dataset: chex.Array | None = None
    """The index of the data set, see `Datasets`; None if batches are given."""


def update(
    task: Task, leaves: Leaves, run: Run, batch: Batch, factor: Array, step: Array
) -> tuple[Leaves, Metrics]:
    """One step of one training on a batch that is at hand; what all loops share.

    Args:
        task: network, loss and optimiser.
        leaves: parameters, variables, optimiser state and memory of one run.
        run: its settings and key.
        batch: the examples.
        factor: the schedule's factor, given to `task.optimizer`.
        step: the number of steps before this one; with `run.key` it gives the random key.

    Returns:
        The new leaves, and the metrics with the loss among them.
    """
    params, variables, optimizer_state, loss_state = leaves
    key = jax.random.fold_in(run.key, step)

    def predict(params: Params) -> tuple[Family, Variables]:
        return task.apply(params, variables, batch.inputs, key=key, train=True)

    def loss_of(params: Params) -> tuple[Array, tuple[Family, Variables]]:
        dist, new_variables = predict(params)
        values = task.objective.values(
            loss_state,
            dist,
            batch.targets,
            indices=batch.rows,
            key=key,
            where=batch.where,
            weights=batch.weights,
        )
        loss = values.mean(where=batch.where)
        if task.penalty is not None:
            loss = loss + task.penalty(params)
        return loss, (dist, new_variables)

    extra: dict[str, chex.ArrayTree] = {"step_kl": None}
    if task.natural is None:
        (loss, (dist, variables)), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    else:
        found = task.natural(params, batch, run.settings, optimizer_state)
        loss, gradients, dist = found.value, found.gradient, found.curvature.dist
        moments = None if found.state is None else found.state.second_moments
        extra = {"step_kl": found.step_kl, "moments": moments}
    optimizer = task.full_optimizer(run.settings, factor)
    updates, optimizer_state = optimizer.update(
        gradients,
        optimizer_state,
        params,
        predict=lambda p: predict(p)[0],
        where=batch.where,
        **extra,
    )
    params = optax.apply_updates(params, updates)
    metrics = {name: metric(dist, optimizer_state) for name, metric in task.metrics}
    return Leaves(params, variables, optimizer_state, loss_state), {"loss": loss, **metrics}
