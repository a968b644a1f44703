"""The one training loop of every method and every experiment.

Many trainings run at once as *lanes*: each has parameters, a learning rate, a key and a *source*,
the index of the data set (or split) it learns from. One compiled loop runs over steps, `vmap` over
lanes. The number of steps is not part of the program: chunks of a long training and data sets of
different length share one. Nothing a lane computes depends on the other lanes.

Batches are rows of the sources, drawn beforehand by NumPy (`shuffled_rows`), so they can be given
to any other implementation. A method's objective may keep values per training row (its *memory*).
It is renewed from the predictions for the whole source when an epoch begins; for most methods it is
empty, and the compiler removes all of it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.typing import ArrayLike

from benchmarks.machinery.methods import Method
from benchmarks.machinery.networks import Network, Params, Variables
from fisher8_jax.transforms import scale_by_kl_radius

Leaves = tuple[Params, Variables, Any, Any]
OptimizerOf = Callable[[Array], optax.GradientTransformation]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that is fixed while compiling.

    Args:
        network: see `benchmarks.machinery.networks`.
        method: see `benchmarks.machinery.methods`.
        optimizer: an Optax transformation from a learning rate, which is traced.
    """

    network: Network
    method: Method
    optimizer: OptimizerOf

    def predict(
        self,
        params: Params,
        variables: Variables,
        inputs: Array,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Any, Variables]:
        """The distribution that a network predicts, and its updated variables."""
        severed = self.method.severs_trunk
        outputs, variables = self.network.forward(
            params, variables, inputs, key=key, severed=severed, train=train
        )
        return self.method.link(*outputs), variables

    def full_optimizer(
        self, learning_rate: Array, rate_factor: Array
    ) -> optax.GradientTransformationExtraArgs:
        """The optimiser, and the method's radius behind it.

        Steps are proportional to the root of the radius, so the factor enters squared.
        """
        optimizer = self.optimizer(learning_rate * rate_factor)
        if self.method.max_kl is not None:
            max_kl = self.method.max_kl * jnp.square(rate_factor)
            radius = scale_by_kl_radius(max_kl, mode=self.method.radius_mode)
            optimizer = optax.chain(optimizer, radius)
        return optax.with_extra_args_support(optimizer)


class Sources(NamedTuple):
    """Training sets, one per entry of the first axis, padded to the same number of rows."""

    inputs: Array
    targets: Array


class Lanes(NamedTuple):
    """What is constant along a lane's training; every leaf has the lanes as first axis."""

    source: Array
    learning_rate: Array
    key: Array


class Schedule(NamedTuple):
    """What happens at each step; every leaf has the steps as first axis."""

    rows: ArrayLike  # (steps, sources, batch)
    new_epoch: ArrayLike  # (steps,), True where memories are refreshed
    rate_factor: ArrayLike  # (steps,), multiplies every lane's learning rate
    where: ArrayLike | None = None  # like `rows`, False for padding; None if there is none

    def chunk(self, first: int, length: int) -> tuple["Schedule", int]:
        """Steps from `first` on, filled up to `length`, and how many of them are to be run."""
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + length], self)
        steps = len(part.rows)
        fill = [(0, length - steps)]
        return jax.tree.map(lambda x: np.pad(x, fill + [(0, 0)] * (x.ndim - 1)), part), steps


class Batch(NamedTuple):
    """Examples of one step."""

    inputs: Any  # whatever the network takes; the training loop only looks rows up in it
    targets: ArrayLike
    rows: ArrayLike  # their places in the training set
    where: ArrayLike | None = None  # False for padding, the rank of the targets


class TrainState(NamedTuple):
    """What changes; every leaf has the lanes as first axis, except the number of steps done."""

    params: Params
    variables: Variables
    optimizer: Any
    memory: Any
    step: Array


def start(
    recipe: Recipe, params: Params, variables: Variables, sources: Sources, lanes: Lanes
) -> TrainState:
    """The state before the first step, from stacked initial parameters."""
    params = jax.tree.map(jnp.asarray, params)
    optimizer, memory = _start(recipe, params, variables, sources, lanes)
    return TrainState(params, variables, optimizer, memory, jnp.zeros((), jnp.int32))


def train(
    recipe: Recipe,
    state: TrainState,
    sources: Sources,
    lanes: Lanes,
    schedule: Schedule,
    steps: int | None = None,
) -> tuple[TrainState, Array]:
    """Runs the first `steps` of `schedule` (all of them by default) in one compiled call.

    The memory of `state` is given up to the result: keep no reference to it.

    Returns:
        The new state, and the training loss of every step and lane, nan for steps not run.
    """
    steps = np.shape(schedule.rows)[0] if steps is None else steps
    return _train(recipe, state, sources, lanes, schedule, jnp.asarray(steps, jnp.int32))


@functools.partial(jax.jit, static_argnums=0)
def _start(recipe, params, variables, sources, lanes):
    def of_lane(params, variables, lane):
        optimizer = recipe.full_optimizer(lane.learning_rate, jnp.ones(()))
        dist, _ = recipe.predict(params, variables, sources.inputs[lane.source])
        return optimizer.init(params), recipe.method.objective.init(dist)

    return jax.vmap(of_lane)(params, variables, lanes)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train(recipe, state, sources, lanes, schedule, steps):
    step = jax.vmap(functools.partial(_step, recipe, sources), in_axes=(0, 0, None, None))

    def body(index, carry):
        state, losses = carry
        now = jax.tree.map(lambda leaf: leaf[index], schedule)
        state = _refresh(recipe, state, sources, lanes, now.new_epoch)
        leaves = (state.params, state.variables, state.optimizer, state.memory)
        leaves, loss = step(leaves, lanes, now, state.step)
        params, variables, optimizer, memory = leaves
        new = TrainState(params, variables, optimizer, memory, state.step + 1)
        return new, losses.at[index].set(loss)

    losses = jnp.full((len(schedule.rows), len(lanes.source)), jnp.nan)
    return lax.fori_loop(0, steps, body, (state, losses))


def _refresh(recipe, state, sources, lanes, new_epoch):
    def of_lane(params, variables, memory, index):
        dist, _ = recipe.predict(params, variables, sources.inputs[index])
        return recipe.method.objective.refresh(memory, dist)

    def fresh(memory):
        return jax.vmap(of_lane)(state.params, state.variables, memory, lanes.source)

    return state._replace(memory=lax.cond(new_epoch, fresh, lambda memory: memory, state.memory))


def _step(recipe, sources, leaves, lane, now, step):
    """One step of one lane, on rows of its source."""
    rows = now.rows[lane.source]
    where = None if now.where is None else now.where[lane.source]
    inputs, targets = (leaf[lane.source, rows] for leaf in sources)
    batch = Batch(inputs, targets, rows, where)
    return update(recipe, leaves, lane, batch, now.rate_factor, step)


def update(
    recipe: Recipe, leaves: Leaves, lane: Lanes, batch: Batch, rate_factor: Array, step: Array
) -> tuple[Leaves, Array]:
    """One step of one training on a batch that is at hand; what all loops share.

    Args:
        recipe: network, method and optimiser.
        leaves: parameters, variables, state of the optimiser and memory, without a lane axis.
        lane: its learning rate and key, without a lane axis.
        batch: the examples.
        rate_factor: multiplies the learning rate.
        step: the number of steps before this one; with `lane.key` it gives the random key.

    Returns:
        The new leaves and the training loss.
    """
    params, variables, optimizer_state, memory = leaves
    inputs, targets, rows, where = batch
    key = jax.random.fold_in(lane.key, step)

    def predict(params):
        return recipe.predict(params, variables, inputs, key, True)

    def loss_of(params):
        dist, new_variables = predict(params)
        values = recipe.method.objective.values(
            memory, dist, targets, indices=rows, key=key, where=where
        )
        return values.mean(where=where), new_variables

    (loss, variables), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    optimizer = recipe.full_optimizer(lane.learning_rate, rate_factor)
    updates, optimizer_state = optimizer.update(
        gradients,
        optimizer_state,
        params,
        predict=lambda params: predict(params)[0],
        where=where,
    )
    params = optax.apply_updates(params, updates)
    return (params, variables, optimizer_state, memory), loss


def shuffled_rows(
    rng: np.random.Generator, rows: int, *, batch: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (steps, batch) from shuffled epochs without their partial batch.

    Returns:
        The rows, and for each step whether it begins an epoch.
    """
    if rows < batch:
        raise ValueError(f"`batch` must not exceed the {rows} training rows, got {batch}.")
    per_epoch = rows // batch
    epochs = -(-steps // per_epoch)
    shuffled = [rng.permutation(rows)[: per_epoch * batch] for _ in range(epochs)]
    order = np.concatenate(shuffled).reshape(-1, batch)[:steps].astype(np.int32)
    return order, np.arange(steps) % per_epoch == 0


def shuffled_epoch(
    rng: np.random.Generator, rows: int, *, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (steps, batch) of one shuffled epoch, its partial batch kept and padded.

    Returns:
        The rows, and for each of them whether it counts: False for padding.
    """
    steps = -(-rows // batch)
    order = np.pad(rng.permutation(rows), (0, steps * batch - rows)).astype(np.int32)
    return order.reshape(steps, batch), np.arange(steps * batch).reshape(steps, batch) < rows


def stack(trees: list[Any]) -> Any:
    """One tree whose leaves have the given trees along a new first axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
