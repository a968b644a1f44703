"""The table of methods: what each makes of a network's two outputs, and how it is trained.

A method is a link (from outputs to a distribution), a loss per element and, for some, a severed
trunk, a memory per training row or a last link of the optimiser. Adding a row here adds it to every
experiment; the training loop knows none of them by name.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax import Family, Gaussian, fisher8_nll


class Batch(NamedTuple):
    """What a loss may look at besides the prediction."""

    inputs: Array
    targets: Array
    memory: Any
    key: Array


Link = Callable[[Array, Array], Family]
Predict = Callable[[Any], Family]


def _no_arguments(predict: Predict, batch: Batch) -> Mapping[str, Any]:
    return {}


def _unchanged(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    return optimizer


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to train a mean and a variance.

    Args:
        label: its name in tables and figures.
        link: the distribution from the network's (mean, raw) outputs.
        loss: one value per element, from the distribution and a `Batch`.
        severs_trunk: the scale output sends no gradient into the trunk.
        remember: the memory of all training rows from their predictions and the old memory, which
            is None at first.
        wrap_optimizer: puts the method's own link at the end of the optimiser.
        optimizer_arguments: extra arguments of the optimiser's update.
    """

    label: str
    link: Link
    loss: Callable[[Any, Batch], Array]
    severs_trunk: bool = False
    remember: Callable[[Any, Any], Any] | None = None
    wrap_optimizer: Callable[[optax.GradientTransformation], optax.GradientTransformation] = (
        _unchanged
    )
    optimizer_arguments: Callable[[Predict, Batch], Mapping[str, Any]] = _no_arguments


def unit_variance_link(mean: Array, raw: Array) -> Gaussian:
    """The second output is not used: the variance is 1."""
    return Gaussian(mean, jnp.zeros_like(mean))


def _nll(dist: Family, batch: Batch) -> Array:
    return dist.nll(batch.targets, constant=False)


def _fisher8(dist: Family, batch: Batch) -> Array:
    return fisher8_nll(dist, batch.targets)


METHODS = {
    "unit_variance": Method("Unit variance", unit_variance_link, _nll),
    "nll": Method("NLL", Gaussian.from_softplus_std, _nll),
    "fisher8": Method("Fisher8", Gaussian.from_softplus_std, _fisher8),
}


def with_link(method: Method, link: Link) -> Method:
    """`method` with another parameterisation of the variance."""
    return dataclasses.replace(method, link=link)
