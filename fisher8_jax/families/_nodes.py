"""Quadrature rules to declare a family with: nodes and weights along a new first axis."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.families._quadrature import add_node_axis, sinh_sinh


def real_line(centre: Array, scale: Array, *, count: int = 129) -> tuple[Array, Array]:
    """For targets that may be any number: dense around `centre`, reaching far into the tails.

    Args:
        centre: where most of the probability is, the batch shape.
        scale: its typical width, the batch shape.
        count: the number of nodes.

    Returns:
        Nodes and weights of shape `(count,) + batch_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> nodes, weights = real_line(jnp.zeros(1), jnp.ones(1))
        >>> float(jnp.sum(weights * jnp.exp(-(nodes**2)), 0)[0])  # the square root of pi
        1.7724...
    """
    largest = 1e60 if centre.dtype == jnp.float64 else 1e15
    nodes, weights = (add_node_axis(x, centre) for x in sinh_sinh(count, largest))
    return centre[None] + scale[None] * nodes, scale[None] * weights


def half_line(scale: Array, *, count: int = 129) -> tuple[Array, Array]:
    """For positive targets of the order of `scale`, by the exp-sinh rule.

    Args:
        scale: the typical size of a target, the batch shape.
        count: the number of nodes.

    Returns:
        Nodes and weights of shape `(count,) + batch_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> nodes, weights = half_line(jnp.ones(1))
        >>> round(float(jnp.sum(weights * jnp.exp(-nodes), 0)[0]), 5)
        1.0
    """
    end = math.asinh((130.0 if scale.dtype == jnp.float64 else 34.0) * 2 / math.pi)
    t, step = np.linspace(-end, end, count, retstep=True)
    nodes = np.exp(0.5 * math.pi * np.sinh(t))
    weights = step * 0.5 * math.pi * np.cosh(t) * nodes
    return scale[None] * add_node_axis(nodes, scale), scale[None] * add_node_axis(weights, scale)


def unit_interval(like: Array, *, count: int = 129) -> tuple[Array, Array]:
    """For targets between 0 and 1, by the tanh-sinh rule.

    Args:
        like: an array that gives batch shape and dtype.
        count: the number of nodes.

    Returns:
        Nodes and weights of shape `(count,) + batch_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> nodes, weights = unit_interval(jnp.zeros(1))
        >>> round(float(jnp.sum(weights * nodes**2, 0)[0]), 5)
        0.33333
    """
    # Logits; closer to 1 than this no float remains, while close to 0 floats are dense.
    near_zero, near_one = (130.0, 36.0) if like.dtype == jnp.float64 else (60.0, 15.0)
    lower, upper = -math.asinh(near_zero / math.pi), math.asinh(near_one / math.pi)
    t, step = np.linspace(lower, upper, count, retstep=True)
    logit = math.pi * np.sinh(t)
    nodes = 1 / (1 + np.exp(-logit))
    weights = step * math.pi * np.cosh(t) * nodes / (1 + np.exp(logit))
    shape = (count, *like.shape)
    return (
        jnp.broadcast_to(add_node_axis(nodes, like), shape),
        jnp.broadcast_to(add_node_axis(weights, like), shape),
    )


def whole_numbers(like: Array, *, count: int) -> tuple[Array, Array]:
    """For counts below `count`, each with weight 1.

    Args:
        like: an array that gives batch shape and dtype.
        count: the number of nodes; larger counts must be improbable.

    Returns:
        Nodes and weights of shape `(count,) + batch_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> nodes, weights = whole_numbers(jnp.zeros(1), count=30)
        >>> float(jnp.sum(weights * 0.5 ** (nodes + 1), 0)[0])
        1.0
    """
    nodes = add_node_axis(np.arange(count), like)
    shape = (count, *like.shape)
    return jnp.broadcast_to(nodes, shape), jnp.ones(shape, like.dtype)
