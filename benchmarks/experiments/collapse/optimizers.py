"""The optimisers of the grid, and the variants of the default optimizer that it was chosen from."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax.optimizers import (
    default_max_kl,
    descend,
    fisher8_optimizer,
    network_optimizer,
    scale_by_kl_radius,
)

ADAM_RATE = 1e-3
Optimizer: TypeAlias = optax.GradientTransformationExtraArgs
Make: TypeAlias = Callable[[Array], Optimizer]


def _adam(steps: Array) -> Optimizer:
    return optax.with_extra_args_support(optax.adam(ADAM_RATE))


def _falling_adam(rate: float) -> Make:
    def make(steps: Array) -> Optimizer:
        def schedule(count: Array) -> Array:
            return rate * jnp.maximum(1 - count / steps, 0)

        return optax.with_extra_args_support(optax.adam(schedule))

    return make


def _radius_alone(steps: Array) -> Optimizer:
    return fisher8_optimizer(steps, second_moment=None, max_change=None)


def _bounded(largest: float) -> Make:
    """Second moments and another bound; hidden units are not protected from shared updates."""
    return lambda steps: descend(_radius(steps, largest), momentum=0.9, second_moment=0.99)


def _short(largest: float) -> Make:
    """The default optimizer with another bound."""
    return lambda steps: fisher8_optimizer(steps, max_change=_change(largest))


def _without_shared_updates(steps: Array) -> Optimizer:
    """The mean along the inputs removed altogether."""
    removed = optax.stateless(lambda updates, _: jax.tree.map(_remove_mean, updates))
    return descend(optax.chain(removed, _radius(steps, 0.2)), momentum=0.9, second_moment=0.99)


def _remove_mean(update: Array) -> Array:
    if update.ndim < 2:
        return update
    return update - update.mean(axis=0, keepdims=True)


def _radius(steps: Array, largest: float) -> Optimizer:
    def max_kl(count: Array) -> Array:
        return default_max_kl(steps) * jnp.maximum(1 - count / steps, 0) ** 2

    return scale_by_kl_radius(max_kl, max_change=_change(largest))


def _change(largest: float) -> optax.Schedule:
    return lambda count: largest / (1 + count) ** 0.5


OPTIMIZERS: dict[str, Make] = {
    "fisher8": fisher8_optimizer,
    "network": network_optimizer,
    "adam": _adam,
    "adam_0.003": _falling_adam(0.003),
    "adam_0.01": _falling_adam(0.01),
    "adam_0.03": _falling_adam(0.03),
    "radius_alone": _radius_alone,
    "bound_0.1": _bounded(0.1),
    "bound_0.2": _bounded(0.2),
    "removed": _without_shared_updates,
    "short_0.2": _short(0.2),
    "default": fisher8_optimizer,
    "short_0.5": _short(0.5),
    "short_1": _short(1.0),
}
