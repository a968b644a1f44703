"""What happens to the arguments of a family's methods before they are called.

They are checked, widened to at least float32 and, where a method says so, broadcast.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def _given_another(argument: str, method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def prepared(self: Any, other: Any) -> object:
        _check_same_kind(self, other, argument)
        return method(self.widen(), other.widen())

    return prepared


def _given_targets(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def prepared(self: Any, targets: Array, **kwargs: object) -> object:
        return method(*self.prepare(targets), **kwargs)

    return prepared


def _given_probability(method: Callable[..., Array]) -> Callable[..., Array]:
    @functools.wraps(method)
    def prepared(self: Any, probability: ArrayLike) -> Array:
        dist, event_shape = self.widen(), self.event_shape
        probability = jnp.asarray(probability, jnp.result_type(*jax.tree.leaves(dist)))
        shape = jnp.broadcast_shapes(probability.shape, self.batch_shape + event_shape)
        dist = dist.broadcast_to(shape[: len(shape) - len(event_shape)])
        return method(dist, jnp.broadcast_to(probability, shape))

    return prepared


def _widened(method: Callable[..., Array]) -> Callable[..., Array]:
    @functools.wraps(method)
    def prepared(self: Any) -> Array:
        return method(self.widen())

    return prepared


# How the arguments of a method are checked and widened before it is called.
PREPARED: dict[str, Callable[[Callable[..., Any]], Callable[..., object]]] = {
    "natural": functools.partial(_given_another, "cotangent"),
    "fisher": functools.partial(_given_another, "tangent"),
    "fisher_norm_sq": functools.partial(_given_another, "tangent"),
    "kl": functools.partial(_given_another, "other"),
    "nll": _given_targets,
    "natural_score": _given_targets,
    "cdf": _given_targets,
    "crps": _given_targets,
    "quantile": _given_probability,
    "fisher_factor": _widened,
}


def _check_same_kind(dist: Any, other: Any, name: str) -> None:
    """Rejects another class, and fields of other shapes than those that `dist` reads."""
    if type(other) is not type(dist):
        kind = type(dist).__name__
        raise TypeError(f"`{name}` must be a {kind}, got {type(other).__name__}.")
    fields = other.parameters()
    # `fisher8` leaves out of `dist` what its information does not depend on.
    read = fields if name == "other" or dist.fisher_depends_on is None else dist.fisher_depends_on
    for field in read:
        own, given = jnp.shape(getattr(dist, field)), fields[field].shape
        if own != given:
            raise ValueError(
                f"`{name}` must have the shapes of the distribution it belongs to: `{field}` has "
                f"shape {own} there and {given} in `{name}`. Nothing is broadcast here; expand one "
                "of them with `jnp.broadcast_to`."
            )
