"""Quantiles by a bounded search, for families whose cdf has no inverse in closed form.

The search halves the list of floating-point numbers between two ends instead of the distance: that
ends after as many steps as a number has bits, whatever the scales involved, with two neighbouring
numbers. So nothing is assumed about where the answer lies or how steep the cdf is.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def crowded_nodes(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1] for integrands with weak singularities at both ends."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    t = 0.5 * (nodes + 1)
    return t**2 * (3 - 2 * t), 0.5 * weights * 6 * t * (1 - t)


def smallest_float(reaches: Callable[[Array], Array], lower: Array, upper: Array) -> Array:
    """The smallest number in `(lower, upper]` where the condition holds, from which on it holds.

    `upper` where it holds nowhere. The number of steps is fixed, so the cost is known when
    compiling. The result carries no derivative.
    """
    bits = 8 * lower.dtype.itemsize

    def halve(_: Array, places: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = places
        middle = (low & high) + ((low ^ high) >> 1)  # the mean, without overflow
        holds = reaches(_number(middle, lower.dtype))
        return jnp.where(holds, low, middle), jnp.where(holds, middle, high)

    start = _place(lax.stop_gradient(lower)), _place(lax.stop_gradient(upper))
    _, high = lax.fori_loop(0, bits, halve, start)
    return _number(high, lower.dtype)


def tail_reaches(tails: tuple[Array, Array], probability: Array) -> Array:
    """Whether the cdf has reached `probability`, judged by the smaller of the two tails."""
    lower, upper = tails
    return jnp.where(probability < 0.5, lower >= probability, upper <= 1 - probability)


def smallest_count(tails: Callable[[Array], tuple[Array, Array]], probability: Array) -> Array:
    """The smallest whole number with `cdf >= probability`, as a float; inf for 1.

    Args:
        tails: the probabilities of at most, and of more than, a number.
        probability: of the common shape.
    """

    def reaches(y: Array) -> Array:
        lower, upper = tails(jnp.floor(y))
        # A probability that is the cdf of a count, but for roundings, belongs to that count.
        return (lower >= almost) | tail_reaches((lower, upper), probability)

    limits = jnp.finfo(probability.dtype)
    almost, largest = (1 - 8 * limits.eps) * probability, jnp.full_like(probability, limits.max)
    count = smallest_float(reaches, jnp.full_like(probability, -1), largest)
    count = jnp.where(probability >= 1, jnp.inf, jnp.maximum(count, 0))
    return jnp.where((probability >= 0) & (probability <= 1), count, jnp.nan)


def _place(x: Array) -> Array:
    """The position of a number among all numbers of its dtype, as a signed integer."""
    integer = jnp.int64 if x.dtype == jnp.float64 else jnp.int32
    return _flip(lax.bitcast_convert_type(x, integer))


def _number(place: Array, dtype: jnp.dtype) -> Array:
    return lax.bitcast_convert_type(_flip(place), dtype)


def _flip(bits: Array) -> Array:
    """Floats sort like integers except that negative ones run backwards."""
    largest = jnp.iinfo(bits.dtype).max
    return jnp.where(bits < 0, bits ^ largest, bits)
