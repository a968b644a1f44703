"""The methods of the comparison as tasks of the library's training loop."""

import dataclasses
from typing import NamedTuple

import jax
import optax
from jax import Array

from benchmarks.experiments.curvature.plan import max_kl
from benchmarks.machinery.networks import Mlp, Params
from fisher8_jax import Family, Gaussian, fisher8, fisher8_optimizer, network_curvature
from fisher8_jax.losses import make_objective
from fisher8_jax.training import Batch, Task, plain_network
from fisher8_jax.transforms import scale_by_kl_radius


class Settings(NamedTuple):
    """Numbers that lanes may differ in."""

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
class Correct:
    """The cotangent of the whole network in front of any loss."""

    predict: Predict

    def __call__(self, dist: Family, params: Params, batch: Batch, settings: Settings) -> Family:
        curvature = network_curvature(self.predict, params, batch.inputs, damping=settings.damping)
        return fisher8(dist, curvature=curvature)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimiser of a method for a number of steps; the schedule's factor is a linear decay."""

    method: str
    steps: int
    max_kl: float

    def __call__(self, settings: Settings, factor: Array) -> optax.GradientTransformation:
        rate = settings.rate * factor
        match self.method:
            case "network":
                return within_radius(self.max_kl, self.steps)
            case "radius":
                return fisher8_optimizer(self.steps)
            case "sgd_fisher8":
                return optax.sgd(rate)
            case "muon_fisher8":
                return optax.contrib.muon(rate)
            case _:
                return optax.adam(rate)


def within_radius(first: float, steps: int) -> optax.GradientTransformation:
    """The natural gradient itself, no step longer than a radius that falls to 0."""
    radius = optax.polynomial_schedule(first, 0.0, power=2, transition_steps=steps)
    return optax.chain(optax.scale(-1.0), scale_by_kl_radius(radius, mode="cap"))


def make_task(method: str, network: Mlp, steps: int, first_radius: float | None = None) -> Task:
    """What the loop trains; `first_radius` only concerns the whole network."""
    predict = Predict(network)
    radius = max_kl(steps) if first_radius is None else first_radius
    is_network = method == "network"
    loss = "gaussian_nll" if is_network or method == "adam_nll" else "fisher8"
    return Task(
        apply=plain_network(predict),
        objective=OBJECTIVES[loss],
        optimizer=Optimizer(method, steps, radius),
        correct=Correct(predict) if is_network else None,
    )


# One object per loss: tasks are compared when compiled programs are looked for.
OBJECTIVES = {name: make_objective(name) for name in ("gaussian_nll", "fisher8")}


SILU = Mlp(hidden=(50, 50), activation=jax.nn.silu)
ELU = Mlp(hidden=(50, 50), activation=jax.nn.elu)
