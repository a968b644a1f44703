"""How far an update moves the predicted distributions, to second order and exactly.

The predictions change by `J u` when the parameters change by `u`, and each distribution then moves
by the KL divergence `1/2 (J u)' F (J u)`, up to third order. `J u` is one forward-mode derivative,
or the difference of two forward passes; no Fisher matrix of the parameters is ever formed.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_axis_name_is_bound, check_mask
from fisher8_jax._internal.numerics import LARGE_ARRAY, AxisName, at_least_float32
from fisher8_jax._masking import zero_outside
from fisher8_jax.families import Family
from fisher8_jax.optimizers._radius_checks import check_precision
from fisher8_jax.optimizers._relative_change import root_mean_square

Predict = Callable[[optax.Params], Family]

PREDICTED = "the result of `predict`"

# The largest entry of a trial step, relative to the largest parameter: in float32 longer steps see
# the curvature of the network, shorter ones the rounding of its outputs.
_TRIAL_STEP = 2.0**-12


class Movement(NamedTuple):
    """The predictions `dist` change by `size * direction`, whose largest magnitude is 1.

    Measuring the direction at unit size keeps the squares of large and small changes in range.
    """

    dist: Family
    direction: Family
    size: Array


class Elements(NamedTuple):
    """Which predictions count: those where the mask is True, here and over `axis_name`."""

    where: Array | None
    axis_name: AxisName | None


def push_forward(
    predict: Predict,
    params: optax.Params,
    updates: optax.Updates,
    elements: Elements,
    *,
    by_difference: bool = False,
) -> Movement:
    """How the predictions at `params` change along `updates`, in at least float32."""
    if by_difference:
        return _movement(*_difference(predict, params, updates), elements)
    tangent, factor = _tangent(updates, params)
    dist, change = jax.tree.map(at_least_float32, _jvp(predict, params, tangent))
    return _movement(dist, change, factor, elements)


def _movement(dist: Family, change: Family, factor: Array | float, elements: Elements) -> Movement:
    """The movement `factor * change`, brought to unit size over all elements that count."""
    size = _largest_magnitude(_zero_outside(change, elements.where))
    if elements.axis_name is not None:
        check_axis_name_is_bound(elements.axis_name)
        size = lax.pmax(size, elements.axis_name)
    divisor = jnp.where(size == 0, 1, size)
    return Movement(dist, jax.tree.map(lambda leaf: leaf / divisor, change), size * factor)


def _tangent(updates: optax.Updates, params: optax.Params) -> tuple[optax.Params, Array | float]:
    """`updates` in the dtypes of `params`, as JAX wants tangents, and what to multiply them by.

    The range of float16 is so short that updates are brought to unit size for it.
    """
    dtypes = [jnp.asarray(leaf).dtype for leaf in jax.tree.leaves(params)]
    factor: Array | float = 1.0
    if jnp.float16 in dtypes:
        largest = _largest_magnitude(updates)
        factor = jnp.where(largest == 0, 1, largest)
        updates = jax.tree.map(lambda leaf: at_least_float32(leaf) / factor, updates)
    return jax.tree.map(lambda u, p: u.astype(jnp.asarray(p).dtype), updates, params), factor


def _difference(
    predict: Predict, params: optax.Params, updates: optax.Updates
) -> tuple[Family, Family, Array]:
    """The predictions and their change by a short trial step, and what to multiply it by."""
    largest = _about_largest_magnitude(updates)
    divisor = jnp.where(largest == 0, 1, largest)
    reach = _about_largest_magnitude(params)
    length = _TRIAL_STEP * jnp.where(reach == 0, 1, reach)

    def move(param: Array, update: Array) -> Array:
        # Divided first: the product of a long update and a short step may overflow.
        step = at_least_float32(update) / divisor * length
        return param + step.astype(jnp.asarray(param).dtype)

    program, dist = jax.make_jaxpr(predict, return_shape=True)(params)
    check_precision(params, program.jaxpr)
    structure = jax.tree.structure(check_family(PREDICTED, dist))

    def predictions(params: optax.Params) -> Family:
        arrays = jaxpr_as_fun(program)(*jax.tree.leaves(params))
        return jax.tree.unflatten(structure, [at_least_float32(x) for x in arrays])

    old, new = predictions(params), predictions(jax.tree.map(move, params, updates))
    return old, jax.tree.map(jnp.subtract, new, old), largest / length


def _largest_magnitude(tree: chex.ArrayTree) -> Array:
    maxima = [jnp.max(at_least_float32(jnp.abs(x)), initial=0) for x in jax.tree.leaves(tree)]
    return functools.reduce(jnp.maximum, maxima, jnp.zeros((), jnp.float32))


def _about_largest_magnitude(tree: chex.ArrayTree) -> Array:
    """That of small arrays; of large ones the root mean square, which is known already, times 4."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    large = [4 * root_mean_square(leaf) for leaf in leaves if leaf.size > LARGE_ARRAY]
    small = _largest_magnitude([leaf for leaf in leaves if leaf.size <= LARGE_ARRAY])
    return functools.reduce(jnp.maximum, large, small)


def _jvp(predict: Predict, params: optax.Params, tangent: optax.Params) -> tuple[Family, Family]:
    try:
        return jax.jvp(lambda p: check_family(PREDICTED, predict(p)), (params,), (tangent,))
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        raise TypeError(
            "`predict` goes through a custom_vjp function, which has no forward-mode derivative. "
            "Return the distribution before `fisher8` is applied: `fisher8` belongs in the loss."
        ) from error


def mean_per_element(values: Array, elements: Elements) -> Array:
    """The mean over all elements that count; 0 if there are none."""
    if elements.where is None:
        total, number = jnp.sum(values), jnp.full((), values.size, values.dtype)
    else:
        where = check_mask("where", elements.where, values.shape)
        total = jnp.sum(jnp.where(where, values, 0))
        number = jnp.sum(where, dtype=values.dtype)
    if elements.axis_name is not None:
        total, number = lax.psum((total, number), elements.axis_name)
    return total / jnp.where(number == 0, 1, number)


def _zero_outside(change: Family, where: Array | None) -> Family:
    if where is None:
        return change
    mask = check_mask("where", where, change.batch_shape)
    return jax.tree.map(lambda leaf: zero_outside(leaf, mask), change)
