"""How a network's raw outputs become a distribution, by name; the first output is the mean's."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.machinery.baselines import TEMPERATURES
from benchmarks.machinery.losses.collier import with_noise
from fisher8_jax import Gaussian


class Head(NamedTuple):
    """A function of `outputs` arrays with the shape of the targets."""

    apply: Callable[..., Gaussian]
    outputs: int = 2


def _unit_variance(mean: Array, raw: Array) -> Gaussian:
    """The second output is not used: the variance is 1."""
    return Gaussian(mean, jnp.zeros_like(mean))


def latent(mean: Array, factor: Array, raw: Array, *, min_diagonal: float = 1e-3) -> Gaussian:
    """From the latent-variable layer: `variance = factor^2 + diagonal^2`.

    The latent is `mean + factor * e + diagonal * e'` with independent standard normal `e`, `e'`
    and `diagonal = softplus(raw) + min_diagonal`. With one target per input the two noises are
    not identifiable, so the latent is this Gaussian; the loss adds the temperature.

    Reference:
        Collier et al., Correlated input-dependent label noise in large-scale image
        classification, CVPR 2021, with one output.
    """
    diagonal = jax.nn.softplus(_widen(raw)) + min_diagonal
    # A ratio, because the logarithm of factor^2 has no derivative at 0.
    ratio = _widen(factor) / diagonal
    log_variance = 2 * jnp.log(diagonal) + jnp.log1p(jnp.square(ratio))
    return Gaussian(mean, log_variance.astype(raw.dtype))


def noisy_latent(mean: Array, factor: Array, raw: Array, *, temperature: float) -> Gaussian:
    """The latent with the observation's noise, of which the temperature is the deviation."""
    return with_noise(latent(mean, factor, raw), temperature)


def _widen(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


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
    "latent": Head(latent, outputs=3),
    **{
        f"latent_{t:g}": Head(functools.partial(noisy_latent, temperature=t), outputs=3)
        for t in TEMPERATURES
        if t
    },
}
