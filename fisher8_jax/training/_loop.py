"""Many steps of many runs in one compiled program.

The number of steps is not part of the program: chunks of a long training, and trainings of
different length, share one. Nothing that a run computes depends on other runs, so a step of many
runs is one `jax.vmap`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax.optimizers import AverageState
from fisher8_jax.training._data import Data, Metrics, Params, Variables
from fisher8_jax.training._method import Method, StepInfo, TrainingState, cast_like
from fisher8_jax.training._networks import Network

LoggedMetrics: TypeAlias = tuple[tuple[str, Callable[[StepInfo], Array]], ...]


class Trained(NamedTuple):
    """What steps change; every leaf has the runs as first axis."""

    state: TrainingState
    average: AverageState | None

    @property
    def params(self) -> Params:
        """The parameters that are validated and kept: the average if there is one."""
        if self.average is None:
            return self.state.params
        return jax.tree.map(cast_like, self.average.average, self.state.params)


@jax.jit
def start(
    method: Method, params: Params, variables: Variables, num_steps: Array, horizon: Array | None
) -> Trained:
    """Before the first step; `method` and parameters have the runs as first axis."""

    def of_run(method: Method, params: Params, variables: Variables) -> Trained:
        average = None if horizon is None else AverageState.start(params)
        return Trained(method.init(params, num_steps, variables), average)

    return jax.vmap(of_run)(method, params, variables)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def train_steps(
    network: Network,
    metrics: LoggedMetrics,
    method: Method,
    trained: Trained,
    keys: Array,
    batches: Data,
    steps: Array,
    horizon: Array | None,
) -> tuple[Trained, Metrics]:
    """Makes the first `steps` of `batches`; `trained` is given up to the result.

    Args:
        network: see `Method.update`.
        metrics: what is logged at each step besides the loss.
        method: runs first.
        trained: runs first.
        keys: one per run.
        batches: leaves of shape (steps, runs, batch, ...).
        steps: how many; the others are padding.
        horizon: of the average of parameters; None for none.

    Returns:
        The new state, and the metrics of every step and run, nan for steps not made.
    """

    def of_run(method: Method, trained: Trained, key: Array, batch: Data) -> tuple[Trained, Any]:
        state, average = trained
        key = jax.random.fold_in(key, state.step)
        state, info = method.update(network, state, batch, key=key)
        if average is not None and horizon is not None:
            average = average.add(state.params, horizon)
        logged = {"loss": info.loss} | {name: metric(info) for name, metric in metrics}
        return Trained(state, average), logged

    def body(index: Array, carry: tuple[Trained, Metrics]) -> tuple[Trained, Metrics]:
        trained, written = carry
        batch = jax.tree.map(lambda leaf: leaf[index], batches)
        trained, logged = jax.vmap(of_run)(method, trained, keys, batch)
        return trained, jax.tree.map(lambda all_, now: all_.at[index].set(now), written, logged)

    shape = batches.targets.shape[:2]
    names = ("loss", *(name for name, _ in metrics))
    empty = {name: jnp.full(shape, jnp.nan) for name in names}
    return lax.fori_loop(0, steps, body, (trained, empty))
