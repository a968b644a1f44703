"""One training step as a pure function of a task, a lane and a batch.

Three words are used throughout this room:

* A *task* is what is fixed while compiling: the network, the loss, the optimiser.
* A *lane* is one training: its parameters, its key and its *settings*, numbers such as a learning
  rate that may differ between lanes and change without compiling again.
* *Readouts* are scalars of a step that are written down: its loss, its KL divergence.

Nothing that a lane computes depends on other lanes, so a step of many lanes is one `jax.vmap`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax.curvature import NetworkGradient
from fisher8_jax.families import Family
from fisher8_jax.losses import Objective
from fisher8_jax.optimizers import track_average

Params: TypeAlias = chex.ArrayTree
Variables: TypeAlias = chex.ArrayTree
Settings: TypeAlias = chex.ArrayTree
Readouts: TypeAlias = dict[str, Array]


class Batch(NamedTuple):
    """The examples of one step.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.training import Batch
        >>> Batch(inputs=jnp.ones((4, 2)), targets=jnp.ones(4)).where is None
        True
    """

    inputs: chex.ArrayTree
    """Whatever the network takes; a tree of arrays with the examples first."""
    targets: chex.Array
    where: chex.Array | None = None
    """Boolean, False for padding and missing targets; the rank of the predictions."""
    weights: chex.Array | None = None
    """The importance of each element; the rank of the predictions."""


class Apply(Protocol):
    """What the loop asks of a network; hashable, so that compiled programs are found again.

    Example:
        >>> from fisher8_jax import Gaussian
        >>> def apply(params, variables, inputs, *, key=None, train=False):
        ...     return Gaussian(params * inputs, 0 * inputs), variables
        >>> apply.__call__ is not None
        True
    """

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
class Task:
    """Everything that is fixed while compiling; all fields are hashable.

    Args:
        apply: the network, see `Apply`; `plain_network` and `nnx_network` make one.
        objective: the loss with its randomness, see `make_objective`; one that keeps no state per
            training row.
        optimizer: an Optax transformation from a lane's settings.
        natural: loss and natural gradient of the whole network on a batch, `(params, batch,
            settings, optimizer state) -> NetworkGradient`, as `network_gradient` computes them; the
            optimiser is told the divergence of the step (`step_kl`) and its second moments
            (`moments`). None differentiates the objective.
        penalty: a scalar of the parameters that is added to the loss; None for none.
        average: how many steps the average of the parameters looks back; None keeps none.
        readouts: more scalars to write down: pairs of a name and a function of the predictions
            before the step and the optimiser state after it.

    Example:
        >>> import optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.losses import make_objective
        >>> from fisher8_jax.training import Task, plain_network
        >>> network = plain_network(lambda params, x: Gaussian(params * x, 0 * x))
        >>> task = Task(network, make_objective("beta_nll"), optax.adam)
        >>> task.readout_names
        ('loss',)
    """

    apply: Apply
    objective: Objective
    optimizer: Callable[[Settings], optax.GradientTransformation]
    natural: Callable[[Params, Batch, Settings, chex.ArrayTree], NetworkGradient] | None = None
    penalty: Callable[[Params], Array] | None = None
    average: float | None = None
    readouts: tuple[tuple[str, Callable[[Family, chex.ArrayTree], Array]], ...] = ()

    def __post_init__(self) -> None:
        if self.natural is not None and self.penalty is not None:
            raise ValueError(
                "`penalty` is part of the loss that is differentiated, and `natural` takes its "
                "place: give one of them, and let the optimiser shrink parameters, as "
                "`optax.add_decayed_weights` does."
            )

    def full_optimizer(self, settings: Settings) -> optax.GradientTransformationExtraArgs:
        """The optimiser, and behind it the average of the parameters."""
        optimizer = self.optimizer(settings)
        if self.average is not None:
            optimizer = optax.chain(optimizer, track_average(self.average))
        return optax.with_extra_args_support(optimizer)

    @property
    def readout_names(self) -> tuple[str, ...]:
        """What `update` writes down at each step."""
        return ("loss", *(name for name, _ in self.readouts))

    def judged(self, params: Params, optimizer_state: chex.ArrayTree) -> Params:
        """The parameters that are judged and kept: the average if there is one."""
        if self.average is None:
            return params
        average = optax.tree_utils.tree_get(optimizer_state, "average")
        return jax.tree.map(lambda mean, leaf: mean.astype(leaf.dtype), average, params)


class Leaves(NamedTuple):
    """What a step changes, of one lane or with the lanes as first axis of every leaf.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from fisher8_jax.training import Leaves
        >>> Leaves(jnp.zeros(3), None, optax.sgd(0.1).init(jnp.zeros(3))).params.shape
        (3,)
    """

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree


class Lane(NamedTuple):
    """What stays the same along a training; stacked, every leaf has the lanes as first axis.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax.training import Lane
        >>> two = Lane(jnp.array([0.01, 0.1]), jax.random.split(jax.random.key(0), 2))
        >>> two.key.shape
        (2,)
    """

    settings: Settings
    key: Array


def update(
    task: Task, leaves: Leaves, lane: Lane, batch: Batch, step: Array
) -> tuple[Leaves, Readouts]:
    """One step of one training on a batch that is at hand; what all loops share.

    Args:
        task: network, loss and optimiser.
        leaves: parameters, variables and optimiser state of one lane.
        lane: its settings and key.
        batch: the examples.
        step: the number of steps before this one; with `lane.key` it gives the random key.

    Returns:
        The new leaves, and the readouts with the loss among them.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.losses import make_objective
        >>> from fisher8_jax.training import Batch, Lane, Leaves, Task, plain_network, update
        >>> network = plain_network(lambda p, x: Gaussian(p * x, jnp.zeros_like(x)))
        >>> task = Task(network, make_objective("fisher8"), optax.sgd)
        >>> params = jnp.array(0.0)
        >>> leaves = Leaves(params, None, optax.sgd(1.0).init(params))
        >>> lane, batch = Lane(0.5, jax.random.key(0)), Batch(jnp.ones(1), jnp.array([2.0]))
        >>> leaves, readouts = update(task, leaves, lane, batch, jnp.array(0))
        >>> print(f"{leaves.params:.2f} {readouts['loss']:.2f}")
        0.50 2.92
    """
    params, variables, optimizer_state = leaves
    key = jax.random.fold_in(lane.key, step)

    def predict(params: Params) -> tuple[Family, Variables]:
        return task.apply(params, variables, batch.inputs, key=key, train=True)

    def loss_of(params: Params) -> tuple[Array, tuple[Family, Variables]]:
        dist, new_variables = predict(params)
        values = task.objective.values(
            (),
            dist,
            batch.targets,
            indices=None,
            key=key,
            where=batch.where,
            weights=batch.weights,
        )
        loss = values.mean(where=batch.where)
        if task.penalty is not None:
            loss = loss + task.penalty(params)
        return loss, (dist, new_variables)

    told: dict[str, chex.ArrayTree] = {"step_kl": None}
    if task.natural is None:
        (loss, (dist, variables)), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    else:
        found = task.natural(params, batch, lane.settings, optimizer_state)
        loss, gradients, dist = found.value, found.gradient, found.curvature.dist
        moments = None if found.state is None else found.state.second_moments
        told = {"step_kl": found.step_kl, "moments": moments}
    optimizer = task.full_optimizer(lane.settings)
    updates, optimizer_state = optimizer.update(
        gradients,
        optimizer_state,
        params,
        predict=lambda p: predict(p)[0],
        where=batch.where,
        **told,
    )
    params = optax.apply_updates(params, updates)
    readouts = {name: readout(dist, optimizer_state) for name, readout in task.readouts}
    return Leaves(params, variables, optimizer_state), {"loss": loss, **readouts}


def score(apply: Apply, params: Params, variables: Variables, batch: Batch) -> tuple[Array, Array]:
    """The summed NLL of a batch and the sum of its weights, missing targets left out.

    Sums over several batches are added before they are divided. No target at all has a weight of 0,
    so its mean is nan and never the best.
    """
    dist, _ = apply(params, variables, batch.inputs)
    values = dist.nll(batch.targets)
    weights = jnp.ones_like(values) if batch.weights is None else batch.weights
    weights = jnp.broadcast_to(weights, values.shape).astype(values.dtype)
    if batch.where is not None:
        where = jnp.broadcast_to(batch.where, values.shape)
        values, weights = jnp.where(where, values, 0), jnp.where(where, weights, 0)
    # A weight of 0 takes a target out even if its NLL is infinite.
    return jnp.sum(jnp.where(weights == 0, 0, values * weights)), jnp.sum(weights)
