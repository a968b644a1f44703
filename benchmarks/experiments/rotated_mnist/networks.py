"""Networks, heads and optimisers of the rotated-digit table, and what its probe looks at."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.experiments.rotated_mnist.plan import BATCH, HYPERPARAMETERS, SETTINGS, Job
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.losses.collier import with_noise
from benchmarks.machinery.networks import Mlp, Params, affine
from benchmarks.machinery.step import Task
from benchmarks.machinery.training import Setup
from fisher8_jax import Gaussian, fisher8_optimizer
from fisher8_jax.training import LossGradient, Method, NetworkNaturalGradient

MOMENTUM = 0.9
NATURAL_CLIP = 10.0
# The public script gives tensors of one element, here the two biases of Faithful, a tenth.
FAITHFUL_BIAS_RATE = 0.1


@dataclasses.dataclass(frozen=True)
class MomentumSgd:
    """SGD on the loss plus `decay * |theta|^2 / 2`.

    Args:
        decay: lambda over the number of training rows.
        clip: the largest global norm of the gradient, None for any.
        head_bias_rate: a factor on the learning rate of the output biases.
    """

    decay: float = 0.0
    clip: float | None = None
    head_bias_rate: float = 1.0

    def __call__(self, learning_rate: Array) -> optax.GradientTransformation:
        links = [optax.add_decayed_weights(self.decay)] if self.decay else []
        if self.clip is not None:
            links.append(optax.clip_by_global_norm(self.clip))
        links.append(optax.sgd(learning_rate, momentum=MOMENTUM))
        if self.head_bias_rate != 1:
            links.append(optax.masked(optax.scale(self.head_bias_rate), _is_head_bias))
        return optax.chain(*links)


@dataclasses.dataclass(frozen=True)
class Ready:
    """The default optimizer; it counts its steps itself and has no learning rate."""

    steps: int

    def __call__(self, learning_rate: Array) -> optax.GradientTransformationExtraArgs:
        return fisher8_optimizer(self.steps)


@dataclasses.dataclass(frozen=True)
class NetworkSetup(Setup):
    """The parameter-space natural gradient with its default optimizer, which needs no rate.

    Args:
        steps: of the whole training.
    """

    steps: int = 1

    @property
    def task(self) -> Task:
        """For the loop; the same object for equal setups."""
        return _network_task(self)


@dataclasses.dataclass(frozen=True)
class EvidenceSetup(Setup):
    """SGD with a precision of the prior for each parameter array, which runs bring along.

    A run's settings are its learning rate and the logarithms of the precisions.

    Args:
        rows: of the training part.
    """

    rows: int = 1

    @property
    def task(self) -> Task:
        """For the loop; the same object for equal setups."""
        return _evidence_task(self)


@functools.lru_cache
def _evidence_task(setup: EvidenceSetup) -> Task:
    gradient = LossGradient("nll")

    def method(settings: tuple[Array, Array], rate_factor: Array) -> Method:
        learning_rate, log_precision = settings
        decays = jnp.exp(log_precision) / setup.rows
        links = [
            optax.stateless(functools.partial(_add_decays, decays)),
            optax.clip_by_global_norm(NATURAL_CLIP),
            optax.sgd(learning_rate * rate_factor, momentum=MOMENTUM),
        ]
        return Method(gradient, optax.chain(*links))

    return Task(setup.predict, method)


def _add_decays(decays: Array, updates: Params, params: Params) -> Params:
    leaves, structure = jax.tree.flatten(updates)
    pairs = zip(leaves, decays, jax.tree.leaves(params), strict=True)
    return jax.tree.unflatten(structure, [leaf + decay * old for leaf, decay, old in pairs])


@functools.lru_cache
def _network_task(setup: NetworkSetup) -> Task:
    def method(learning_rate: Array, rate_factor: Array) -> Method:
        return Method(NetworkNaturalGradient())

    return Task(setup.predict, method, num_steps=lambda rate: setup.steps)


def make_setup(method: str, *, prior: float, rows: int, epochs: int = 1) -> Setup:
    """Network, method and optimiser of a row of the table."""
    row = SETTINGS[method].method
    hidden = (500, 500) if method == "faithful" else (500, 500, 500)
    network = Mlp(hidden=hidden, activation=jax.nn.relu, outputs=HEADS[row.head].outputs)
    steps = max(1, epochs * math.ceil(rows / BATCH))
    if method == "fisher8_recipe":
        return Setup(network, row, Ready(steps))
    if method == "network_recipe":
        return NetworkSetup(network, row, optax.identity, steps)
    if method == "natural_evidence":
        return EvidenceSetup(network, row, optax.identity, rows)
    if method == "nll_adam":
        return Setup(network, row, optax.adam)
    optimizer = MomentumSgd(
        decay=prior / rows,
        clip=NATURAL_CLIP if method == "natural_nll" else None,
        head_bias_rate=FAITHFUL_BIAS_RATE if method == "faithful" else 1.0,
    )
    return Setup(network, row, optimizer)


def predictive_head(job: Job) -> Callable[[Gaussian], Gaussian]:
    """From the trained distribution to that of an observation: Collier's adds the temperature."""
    if job.method != "collier":
        return lambda dist: dist
    temperature = HYPERPARAMETERS["collier"]["temperature"]
    return lambda dist: with_noise(dist, temperature)


def representation(method: str, params: Params, inputs: Array) -> Array:
    """What the probe sees: the last hidden layer, for Faithful after its ReLU, else before it."""
    *below, last = params["trunk"]
    hidden = inputs
    for layer in below:
        hidden = jax.nn.relu(affine(hidden, layer))
    outputs = affine(hidden, last)
    return jax.nn.relu(outputs) if method == "faithful" else outputs


def _is_head_bias(params: Params) -> Any:
    mask = jax.tree.map(lambda leaf: False, params)
    return {**mask, "head": {**mask["head"], "b": True}}
