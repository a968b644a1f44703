"""Integrals without a closed form: fixed nodes, so that they compile once and have derivatives."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.axes import append_axes


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
