"""How a network's raw outputs become a distribution, by name; the first output is the mean's."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fisher8_jax import Gaussian


class Head(NamedTuple):
    """A function of `outputs` arrays with the shape of the targets."""

    apply: Callable[..., Gaussian]
    outputs: int = 2


def _unit_variance(mean: Array, raw: Array) -> Gaussian:
    """The second output is not used: the variance is 1."""
    return Gaussian(mean, jnp.zeros_like(mean))


HEADS = {
    "unit_variance": Head(_unit_variance),
    "log_variance": Head(Gaussian),
    "log_std": Head(Gaussian.from_log_std),
    "softplus_std": Head(Gaussian.from_softplus_std),
    "softplus_variance": Head(Gaussian.from_softplus_variance),
    "bounded_softplus_variance": Head(
        functools.partial(Gaussian.from_softplus_variance, min_variance=1e-8)
    ),
    "natural": Head(Gaussian.from_natural),
    # What Collier's method predicts at temperature 0: the latent itself.
    "latent": Head(Gaussian.from_latent, outputs=3),
}
