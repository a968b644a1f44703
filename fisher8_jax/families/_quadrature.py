"""Integrals without a closed form: fixed nodes, so that they compile once and have derivatives."""

import math
from collections.abc import Callable
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._internal.bisection import crowded_nodes
from fisher8_jax._internal.trees import append_axes


def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the Gauss-Legendre rule on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (nodes + 1), 0.5 * weights


def sinh_sinh(count: int, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for integrals over the real line whose integrand may decay slowly.

    The trapezoidal rule in `t` with `z = sinh(pi/2 sinh(t))` converges geometrically for smooth
    integrands with tails as heavy as a power; `largest` is the largest node.

    Reference:
        Takahasi and Mori (1974), Double exponential formulas for numerical integration.
    """
    end = math.asinh(math.asinh(largest) * 2 / math.pi)
    t, step = np.linspace(-end, end, count, retstep=True)
    inner = 0.5 * math.pi * np.sinh(t)
    weights = step * 0.5 * math.pi * np.cosh(t) * np.cosh(inner)
    return np.sinh(inner), weights


def sinh_sinh_end(count: int, largest: float) -> float:
    """Up to where the nodes of `sinh_sinh` integrate: half a step beyond the largest."""
    end = math.asinh(math.asinh(largest) * 2 / math.pi)
    return math.sinh(0.5 * math.pi * math.sinh(end * (1 + 1 / (count - 1))))


def add_node_axis(nodes: np.ndarray, like: Array) -> Array:
    """The nodes along a new first axis, ready to meet an array of the batch shape."""
    return append_axes(jnp.asarray(nodes, like.dtype), 1 + like.ndim)


def expectation(
    function: Callable[[Array], Array],
    log_density: Callable[[Array], Array],
    nodes: Array,
    weights: Array,
) -> Array:
    """`sum_i weights_i exp(log_density(nodes_i)) function(nodes_i)` over the first axis.

    A node whose probability vanishes counts as 0 even where the function is infinite.
    """
    mass = weights * jnp.exp(log_density(nodes))
    is_empty = mass == 0
    values = function(nodes)
    return jnp.sum(jnp.where(is_empty, 0, mass * jnp.where(is_empty, 0, values)), axis=0)


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


# Nodes on either side of the target. The error is then below 3e-7 standard deviations for a
# Gaussian and below 7e-6 scales for a Laplace distribution, whose quantile function has a kink.
_NODES = 48


class _Continuous(Protocol):
    def cdf(self, targets: Array) -> Array: ...

    def quantile(self, probability: Array) -> Array: ...


def crps_by_quadrature(dist: _Continuous, targets: Array) -> Array:
    """The integral over the quantile function, split at the target where it has a kink.

    Each side is integrated by Gauss-Legendre nodes after the substitution `3 t^2 - 2 t^3`, which
    crowds them at both ends: there the quantile function of an unbounded distribution diverges.
    """
    at_target = jnp.clip(dist.cdf(targets), 0, 1)
    nodes, weights = crowded_nodes(_NODES)
    tiny = jnp.finfo(at_target.dtype).tiny

    def add_node(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        position, weight = node
        below = at_target * position
        tail_above = (1 - at_target) * position
        left = at_target * below * (targets - dist.quantile(below))
        right = (1 - at_target) * tail_above * (dist.quantile(1 - tail_above) - targets)
        # Past the last representable probability the quantile is infinite and its share is nothing.
        left = jnp.where(below >= tiny, left, 0)
        right = jnp.where(1 - tail_above < 1, right, 0)
        return total + 2 * weight * (left + right), None

    start = jnp.zeros_like(at_target)
    columns = (jnp.asarray(nodes, start.dtype), jnp.asarray(weights, start.dtype))
    total, _ = lax.scan(add_node, start, columns)
    return total
