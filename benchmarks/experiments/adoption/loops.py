"""Losses by name for any program, and the loops of ours: the KL radius, the natural gradient.

A program's own loop trains where it can. Two methods need more than a loss: an optimiser that sees
the predictions, or a gradient that is none of a loss. Those take the program's network and data.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments.adoption.plan import LOOKS
from fisher8_jax import (
    Gaussian,
    fisher8_nll,
    fisher8_optimizer,
    network_gradient,
    network_optimizer,
)
from fisher8_jax.losses import beta_nll

Loss = Callable[..., jax.Array]


def loss_of(method: str, axis: int | tuple[int, ...] = 0) -> Loss | None:
    """The loss that replaces the program's; None where its own stays."""
    fisher8 = functools.partial(fisher8_nll, axis=axis)
    losses: dict[str, Loss | None] = {"nll": None, "beta_nll": beta_nll}
    losses["fisher8_tenth"] = lambda dist, targets: fisher8(weaker(dist), targets)
    return losses.get(method, fisher8)


def weaker(dist: Gaussian, factor: float = 0.1) -> Gaussian:
    """`dist` whose log-variance pulls by `factor` on the layers before it."""
    return Gaussian(dist.mean, optax.scale_gradient(dist.log_variance, factor))


def adam(rate: float | None, optimizer: Callable = optax.adam, **options: Any) -> Any:
    """An optimiser whose rate is no constant of the compiled program, which all rates share."""
    return optax.inject_hyperparams(optimizer)(learning_rate=rate, **options)


def look_steps(steps: int) -> list[int]:
    """The steps after which a training is evaluated."""
    return [round(steps * (look + 1) / LOOKS) for look in range(LOOKS)]


def scores(evaluate: Callable[[Any], dict[str, Any]], snapshots: list[Any]) -> dict[str, list]:
    """What `evaluate` says of every snapshot of the parameters, a list for each score."""
    found = [evaluate(params) for params in snapshots]
    return {name: [_number(one[name]) for one in found] for name in found[0]}


def _number(value: Any) -> float | None:
    number = float(value)
    return round(number, 6) if np.isfinite(number) else None


class Network(NamedTuple):
    """A program's network and data as the loops of ours need them.

    Args:
        predict_one: (parameters, inputs of one example) to a distribution.
        loss: (parameters, inputs, targets) to the program's loss, with the change in it.
        draw: (key, data) to inputs and targets of a batch.
    """

    predict_one: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any, Any], jax.Array]
    draw: Callable[[jax.Array, Any], tuple[Any, Any]]


class Loop:
    """One compiled training for all seeds: by a rate and an optimiser, by radius, or natural."""

    def __init__(self, network: Network, method: str, steps: int, *, members: bool = False):
        self.network, self.method, self.steps = network, method, steps
        chunk, self._init = (
            self._train_chunk,
            lambda params, rate: self.optimizer(rate).init(params),
        )
        if members:  # the first axis of the parameters: each member a training of its own
            chunk = jax.vmap(chunk, (0, 0, None, None, None))
            self._init = jax.vmap(self._init, (0, None))
        self._chunk = jax.jit(chunk)

    def optimizer(self, rate: Any) -> optax.GradientTransformationExtraArgs:
        """Of the method; `rate` only where it has one."""
        if self.method == "network":
            return network_optimizer(self.steps)
        if self.method == "radius":
            return fisher8_optimizer(self.steps)
        return optax.with_extra_args_support(optax.adam(rate))

    def train(self, params: Any, data: Any, seed: int, rate: float | None) -> list[Any]:
        """The parameters at every evaluation."""
        rate = 0.0 if rate is None else rate
        state = self._init(params, rate)
        snapshots, first = [], 0
        keys = jax.random.split(jax.random.key(seed), self.steps)
        for last in look_steps(self.steps):
            params, state = self._chunk(params, state, keys[first:last], data, rate)
            snapshots.append(params)
            first = last
        return snapshots

    def _train_chunk(self, params, state, keys, data, rate):
        def step(carry, key):
            params, state = carry
            inputs, targets = self.network.draw(key, data)
            updates, state = self._updates(params, state, inputs, targets, rate)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), keys)[0]

    def _updates(self, params, state, inputs, targets, rate):
        optimizer = self.optimizer(rate)
        if self.method == "network":
            step = network_gradient(self.network.predict_one, params, inputs, targets)
            return optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
        gradient = jax.grad(self.network.loss)(params, inputs, targets)

        def predict(params):
            return jax.vmap(self.network.predict_one, (None, 0))(params, inputs)

        return optimizer.update(gradient, state, params, predict=predict)


def mean_nll(dist: Gaussian, targets: jax.Array) -> jax.Array:
    """The mean NLL of one network."""
    return dist.nll(targets).mean()


def mixture_nll(members: Any, targets: jax.Array) -> jax.Array:
    """The mean NLL of an equal mixture of members, which are the first axis."""
    values = jax.vmap(lambda member: member.nll(targets))(members)
    return jnp.mean(jnp.log(len(values)) - jax.nn.logsumexp(-values, axis=0))
