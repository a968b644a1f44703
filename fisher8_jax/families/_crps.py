"""The continuous ranked probability score of distributions that know no closed form.

For a predicted cdf `F` with quantile function `q` and a target `y`,

    CRPS = integral (F(t) - [t >= y])^2 dt
         = 2 integral_0^1 ([y <= q(p)] - p) (q(p) - y) dp

Reference:
    Gneiting and Raftery, Strictly proper scoring rules, JASA 2007, section 4.2.
"""

from typing import Protocol

import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.quadrature import crowded_nodes

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
