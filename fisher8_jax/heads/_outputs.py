"""What both heads do after their linear layers, and how they check what they are given."""

import math
from collections.abc import Callable, Mapping

import chex
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._fisher8 import fisher8
from fisher8_jax._internal.checks import check_floating
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.heads._links import Link, SomeFamily

Shape = tuple[int, ...]


def output_shapes(link: Link[SomeFamily], target_shape: Shape) -> dict[str, Shape]:
    """The shape of every raw output for one row of features."""
    return {name: (*target_shape, *axes) for name, axes in link.outputs}


def output_biases(
    link: Link[SomeFamily], target_shape: Shape, initial: Mapping[str, chex.Numeric] | None
) -> dict[str, np.ndarray]:
    """The first bias of every output: zeros, or `initial` by name, flat."""
    shapes, initial = output_shapes(link, target_shape), initial or {}
    unknown = sorted(set(initial) - set(shapes))
    if unknown:
        raise ValueError(
            f"`initial` names {unknown[0]!r}, but the raw outputs of this link are "
            f"{', '.join(shapes)}. Make it with `initial_outputs(link, targets)`."
        )
    return {
        name: np.broadcast_to(np.asarray(initial.get(name, 0.0), np.float32), shape).reshape(-1)
        for name, shape in shapes.items()
    }


def flat_sizes(link: Link[SomeFamily], target_shape: Shape) -> dict[str, int]:
    """The width of every linear layer."""
    return {name: math.prod(shape) for name, shape in output_shapes(link, target_shape).items()}


def make_distribution(
    link: Link[SomeFamily],
    target_shape: Shape,
    features: Array,
    layers: Mapping[str, Callable[[Array], Array]],
    learned: Mapping[str, Array],
    *,
    stop_gradient: bool,
) -> SomeFamily:
    """Applies one linear layer per output, in at least float32, and the link."""
    features = at_least_float32(check_floating("features", features))
    location = link.names[0]
    raw = {}
    for name, shape in output_shapes(link, target_shape).items():
        inputs = lax.stop_gradient(features) if stop_gradient and name != location else features
        raw[name] = layers[name](inputs).reshape(*features.shape[:-1], *shape)
    return link.make(**raw, **{name: jnp.asarray(value) for name, value in learned.items()})


def corrected(
    dist: SomeFamily, natural_gradient: bool, axis: int | tuple[int, ...], where: Array | None
) -> SomeFamily:
    """`fisher8(dist)` if the caller asked for natural gradients."""
    if natural_gradient:
        return fisher8(dist, axis=axis, where=where)
    if where is not None:
        raise ValueError(
            "`where` has no effect without `natural_gradient=True`: give the mask to the loss "
            "instead."
        )
    return dist
