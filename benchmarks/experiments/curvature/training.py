"""The methods of the comparison as tasks of the library's training loop."""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import optax
from jax import Array

from benchmarks.experiments.curvature.plan import is_network, max_kl, program_of
from benchmarks.machinery.networks import Mlp, Params
from benchmarks.machinery.step import Task, plain_network
from fisher8_jax import Gaussian, fisher8_optimizer
from fisher8_jax.training import (
    KLRadius,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)


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
class MethodOf:
    """A row of the comparison from a run's settings; the factor is a linear decay of the rate."""

    method: str
    steps: int
    max_kl: float
    mode: Literal["target", "cap"]

    def __call__(self, settings: Settings, factor: Array) -> Method:
        if is_network(self.method):
            radius = KLRadius(self.max_kl, mode=self.mode)
            return Method(NetworkNaturalGradient(settings.damping), radius)
        if self.method == "adam_nll":
            return Method(LossGradient("nll"), optax.adam(settings.rate * factor))
        return Method(OutputNaturalGradient(), self._optimizer(settings.rate * factor))

    def _optimizer(self, rate: Array) -> optax.GradientTransformation:
        match program_of(self.method):
            case "radius":
                return fisher8_optimizer(self.steps, max_change=None, second_moment=None)
            case "sgd_fisher8":
                return optax.sgd(rate)
            case "muon_fisher8":
                return optax.contrib.muon(rate)
            case _:
                return optax.adam(rate)


@functools.lru_cache
def make_task(
    method: str,
    network: Mlp,
    steps: int,
    cap: float | None = None,
    average: float | None = None,
) -> Task:
    """What the loop trains; the same object for equal arguments, so that programs are found again.

    Args:
        method: a row of `METHODS`.
        network: its network.
        steps: how long it trains.
        cap: the first radius of the natural gradient in the mode 'cap'; None for the default.
        average: the part of the steps that an average of the parameters covers; None for none.
    """
    horizon = None if average is None else max(average * steps, 1.0)
    return Task(
        apply=plain_network(Predict(network)),
        method=MethodOf(method, steps, cap or max_kl(steps), "cap" if cap else "target"),
        num_steps=lambda settings: steps,
        average=None if horizon is None else lambda settings: horizon,
    )


SILU = Mlp(hidden=(50, 50), activation=jax.nn.silu)
ELU = Mlp(hidden=(50, 50), activation=jax.nn.elu)
