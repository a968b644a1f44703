"""Integrals without a closed form: fixed nodes, so that they compile once and have derivatives."""

import math
from collections.abc import Callable
from typing import Literal, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._internal.bisection import crowded_nodes
from fisher8_jax._internal.checks import check_choice
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


def quadrature_nodes(
    support: Literal["real", "positive", "unit interval", "counts"],
    like: Array,
    scale: Array | None = None,
    *,
    count: int = 129,
) -> tuple[Array, Array]:
    """Nodes and weights for integrals over all targets of a support, to declare a family with.

    Args:
        support: "real" by the sinh-sinh rule, dense around `like` and reaching far into the tails;
            "positive" by the exp-sinh rule; "unit interval" by the tanh-sinh rule; "counts" below
            `count`, each with weight 1.
        like: for "real" where most of the probability is, for "positive" the typical size of a
            target; otherwise any array of the batch shape and dtype.
        scale: for "real" the typical width of the probability, the batch shape.
        count: the number of nodes; larger counts must be improbable.

    Returns:
        Nodes and weights of shape `(count,) + batch_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import quadrature_nodes
        >>> nodes, weights = quadrature_nodes("real", jnp.zeros(1), jnp.ones(1))
        >>> float(jnp.sum(weights * jnp.exp(-(nodes**2)), 0)[0])  # the square root of pi
        1.7724...
        >>> nodes, weights = quadrature_nodes("counts", jnp.zeros(1), count=30)
        >>> float(jnp.sum(weights * 0.5 ** (nodes + 1), 0)[0])
        1.0
    """
    check_choice("support", support, ("real", "positive", "unit interval", "counts"))
    is_double = like.dtype == jnp.float64
    if support == "real":
        if scale is None:
            raise ValueError("`scale` must be given for the support 'real': a typical width.")
        rule = sinh_sinh(count, 1e60 if is_double else 1e15)
        nodes, weights = (scale[None] * add_node_axis(x, like) for x in rule)
        return like[None] + nodes, weights
    if scale is not None:
        raise ValueError(f"`scale` must be left out for the support {support!r}.")
    if support == "positive":
        rule = _exp_sinh(count, 130.0 if is_double else 34.0)
        nodes, weights = (like[None] * add_node_axis(x, like) for x in rule)
        return nodes, weights
    # Logits; closer to 1 than this no float remains, while close to 0 floats are dense.
    ends = (130.0, 36.0) if is_double else (60.0, 15.0)
    counts = (np.arange(count), np.ones(count))
    rule = counts if support == "counts" else _tanh_sinh(count, *ends)
    shape = (count, *like.shape)
    nodes, weights = (jnp.broadcast_to(add_node_axis(x, like), shape) for x in rule)
    return nodes, weights


def _exp_sinh(count: int, largest_log: float) -> tuple[np.ndarray, np.ndarray]:
    end = math.asinh(largest_log * 2 / math.pi)
    t, step = np.linspace(-end, end, count, retstep=True)
    nodes = np.exp(0.5 * math.pi * np.sinh(t))
    return nodes, step * 0.5 * math.pi * np.cosh(t) * nodes


def _tanh_sinh(count: int, near_zero: float, near_one: float) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = -math.asinh(near_zero / math.pi), math.asinh(near_one / math.pi)
    t, step = np.linspace(lower, upper, count, retstep=True)
    logit = math.pi * np.sinh(t)
    nodes = 1 / (1 + np.exp(-logit))
    return nodes, step * math.pi * np.cosh(t) * nodes / (1 + np.exp(logit))


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
