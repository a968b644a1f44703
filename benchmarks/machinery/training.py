"""Published baselines as tasks of the loop, which trains all of them.

Many trainings go on at once as *runs*: each has parameters, a learning rate, a key and the index of
the data set (or split) it learns from. Batches are rows of the data sets, drawn
beforehand by NumPy, so they can be given to any other implementation.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.machinery.baselines import Baseline
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.losses.objective import Objective, make_objective
from benchmarks.machinery.networks import Network, Params, Variables
from benchmarks.machinery.step import Task, with_rows, without_rows
from fisher8_jax.optimizers import scale_by_kl_radius
from fisher8_jax.training import LossGradient, Method

OptimizerOf = Callable[[Array], optax.GradientTransformation]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Everything that is fixed while compiling.

    Args:
        network: see `benchmarks.machinery.networks`.
        method: see `benchmarks.machinery.baselines`.
        optimizer: an Optax transformation from a learning rate, which is traced.
    """

    network: Network
    method: Baseline
    optimizer: OptimizerOf

    @property
    def task(self) -> Task:
        """For the loop; the same object for equal setups, so programs are shared.

        A run's settings are its learning rate; the schedule's factor multiplies it.
        """
        return _task(self)

    def predict(
        self,
        params: Params,
        variables: Variables,
        inputs: Any,
        *,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Any, Variables]:
        """The distribution that a network predicts, and its updated variables."""
        stop_gradient = self.method.stops_trunk
        outputs, variables = self.network.forward(
            params, variables, inputs, key=key, stop_gradient=stop_gradient, train=train
        )
        return HEADS[self.method.head].apply(*outputs), variables

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

    def penalty(self, params: Params) -> Array:
        """What the method adds to the mean of its values; 0 for most."""
        return objective_of(self.method).penalty(*self.network.split(params))


@functools.lru_cache
def _task(setup: Setup) -> Task:
    objective = objective_of(setup.method)
    needs_more = setup.method.loss in ("trustable", "collier")
    loss = (with_rows if needs_more else without_rows)(objective)
    gradient = LossGradient(loss, (), setup.penalty)

    def method(learning_rate: Array, rate_factor: Array) -> Method:
        return Method(gradient, setup.full_optimizer(learning_rate, rate_factor))

    return Task(setup.predict, method, objective=objective if needs_more else None)


def objective_of(method: Baseline) -> Objective:
    """The loss of a row; the same object for equal rows."""
    return _objective(method.loss, method.hyperparameters)


@functools.lru_cache
def _objective(loss: str, hyperparameters: tuple[tuple[str, Any], ...]) -> Objective:
    return make_objective(loss, **dict(hyperparameters))
