"""Quantiles by a bounded search, for families whose cdf has no inverse in closed form."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax


def broadcast_probability(
    probability: Array, shape: tuple[int, ...], *parameters: Array
) -> tuple[Array, ...]:
    """`probability` and the parameters, all of the common shape and of the parameters' dtype."""
    dtype = jnp.result_type(*parameters)
    probability = jnp.asarray(probability, dtype)
    common = jnp.broadcast_shapes(probability.shape, shape)
    return tuple(jnp.broadcast_to(x, common) for x in (probability, *parameters))


def invert_increasing(
    function: Callable[[Array], Array], values: Array, lower: Array, upper: Array
) -> Array:
    """The `x` in `[lower, upper]` with `function(x) = values`, to the precision of the dtype.

    The bracket is halved a fixed number of times, so the cost is known when compiling and nothing
    can diverge. The result carries no derivative.
    """
    steps = 80 if values.dtype == jnp.float64 else 48

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * low + 0.5 * high
        is_below = function(middle) < values
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    values, lower, upper = (lax.stop_gradient(x) for x in (values, lower, upper))
    low, high = lax.fori_loop(0, steps, halve, (lower, upper))
    return 0.5 * low + 0.5 * high


def smallest_count(cdf: Callable[[Array], Array], probability: Array, upper: Array) -> Array:
    """The smallest whole number `n` in `[0, upper]` with `cdf(n) >= probability`, as a float.

    A bisection over whole numbers; `upper` is doubled first where it turns out too small.
    """

    def double(_: Array, high: Array) -> Array:
        return jnp.where(cdf(high) < probability, 2 * high + 1, high)

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = jnp.floor(0.5 * (low + high))
        reaches = cdf(middle) >= probability
        return jnp.where(reaches, low, middle), jnp.where(reaches, middle, high)

    probability = lax.stop_gradient(probability)
    high = lax.fori_loop(0, 20, double, jnp.floor(lax.stop_gradient(upper)))
    low = jnp.full_like(high, -1)
    low, high = lax.fori_loop(0, 48, halve, (low, high))
    # Bisection keeps cdf(high) >= probability; a probability of 1 is reached by no finite count.
    return jnp.where(probability >= 1, jnp.inf, high)
