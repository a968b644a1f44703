"""The methods of the comparison as tasks of the library's training loop."""

import dataclasses
from typing import Literal, NamedTuple

import jax
import optax
from chex import ArrayTree
from jax import Array

from benchmarks.experiments.curvature.plan import is_network, max_kl, program_of
from benchmarks.machinery.networks import Mlp, Params
from benchmarks.machinery.step import Batch, Task, plain_network
from fisher8_jax import Gaussian, fisher8_optimizer, network_gradient, network_optimizer
from fisher8_jax.curvature import NetworkGradient
from fisher8_jax.losses import make_objective


class Settings(NamedTuple):
    """Numbers that runs may differ in."""

    rate: Array
    damping: Array


@dataclasses.dataclass(frozen=True)
class Predict:
    """A dense network with a mean and a log-variance; equal networks share compiled programs."""

    network: Mlp

    def __call__(self, params: Params, inputs: Array) -> Gaussian:
        outputs, _ = self.network.forward(params, None, inputs)
        return Gaussian(*outputs)


@dataclasses.dataclass(frozen=True)
class Natural:
    """The natural gradient of the whole network, as users get it."""

    predict: Predict

    def __call__(
        self, params: Params, batch: Batch, settings: Settings, state: ArrayTree
    ) -> NetworkGradient:
        return network_gradient(
            self.predict, params, batch.inputs, batch.targets, damping=settings.damping
        )


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimiser of a method for a number of steps; the schedule's factor is a linear decay."""

    method: str
    steps: int
    max_kl: float
    mode: Literal["target", "cap"]

    def __call__(self, settings: Settings, factor: Array) -> optax.GradientTransformation:
        rate = settings.rate * factor
        match program_of(self.method):
            case "network":
                return network_optimizer(
                    self.steps, max_kl=self.max_kl, mode=self.mode, average=None
                )
            case "radius":
                return fisher8_optimizer(self.steps, max_change=None, second_moment=None)
            case "sgd_fisher8":
                return optax.sgd(rate)
            case "muon_fisher8":
                return optax.contrib.muon(rate)
            case _:
                return optax.adam(rate)


def make_task(
    method: str,
    network: Mlp,
    steps: int,
    cap: float | None = None,
    average: float | None = None,
) -> Task:
    """What the loop trains.

    Args:
        method: a row of `METHODS`.
        network: its network.
        steps: how long it trains.
        cap: the first radius of the whole network in the mode 'cap'; None for the recipe's own.
        average: the part of the steps that an average of the parameters looks back; None for none.
    """
    predict = Predict(network)
    optimizer = Optimizer(method, steps, cap or max_kl(steps), "cap" if cap else "target")
    return Task(
        apply=plain_network(predict),
        objective=OBJECTIVES["nll" if method == "adam_nll" else "fisher8"],
        optimizer=optimizer,
        natural=Natural(predict) if is_network(method) else None,
        average=None if average is None else max(average * steps, 1.0),
    )


# One object per loss: tasks are compared when compiled programs are looked for.
OBJECTIVES = {name: make_objective(name) for name in ("nll", "fisher8")}


SILU = Mlp(hidden=(50, 50), activation=jax.nn.silu)
ELU = Mlp(hidden=(50, 50), activation=jax.nn.elu)
