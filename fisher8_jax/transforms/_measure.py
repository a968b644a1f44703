"""How far an update moves the predicted distributions, to second order and exactly.

The predictions change by `J u` when the parameters change by `u`, and each distribution then moves
by the KL divergence `1/2 (J u)' F (J u)`, up to third order. `J u` is one forward-mode derivative;
no Fisher matrix of the parameters is ever formed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._checks import check_axis_name_is_bound, check_mask
from fisher8_jax._numerics import AxisName, at_least_float32
from fisher8_jax.families.contract import Family
from fisher8_jax.transforms._checks import check_prediction

Predict = Callable[[Any], Family]

# What `jax.linearize(predict, params)` returns: the predictions and their derivative.
Linearized = tuple[Family, Callable[[Any], Family]]


class Direction(NamedTuple):
    """The update `largest * unit`, where the largest magnitude in `unit` is 1.

    `J u` is linear, so the direction is measured at unit size: no update is too large or too small
    to be squared.
    """

    unit: Any
    largest: Array


def direction_of(updates: Any) -> Direction:
    """Splits `updates` into a direction and a size, in at least float32."""
    leaves = [at_least_float32(jnp.abs(leaf)) for leaf in jax.tree.leaves(updates)]
    maxima = [jnp.max(leaf, initial=0) for leaf in leaves] or [jnp.zeros(())]
    dtype = jnp.result_type(jnp.float32, *maxima)
    largest = jnp.max(jnp.stack([maximum.astype(dtype) for maximum in maxima]))
    divisor = jnp.where(largest == 0, 1, largest)
    unit = jax.tree.map(lambda leaf: at_least_float32(leaf) / divisor, updates)
    return Direction(unit, largest)


def push_forward(
    predict: Predict | None, linearized: Linearized | None, params: Any, unit: Any
) -> tuple[Family, Family]:
    """The predictions at `params` and their derivative along `unit`, in at least float32."""
    # JAX wants tangents in the dtype of what they are tangent to.
    tangent = jax.tree.map(lambda u, p: u.astype(jnp.asarray(p).dtype), unit, params)
    if linearized is not None:
        dist, push = linearized
        pair = check_prediction(dist), push(tangent)
    else:
        assert predict is not None
        pair = _jvp(predict, params, tangent)
    dist, change = jax.tree.map(at_least_float32, pair)
    return dist, change


def _jvp(predict: Predict, params: Any, tangent: Any) -> tuple[Family, Family]:
    try:
        return jax.jvp(lambda p: check_prediction(predict(p)), (params,), (tangent,))
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        raise TypeError(
            "`predict` goes through a custom_vjp function, which has no forward-mode derivative. "
            "Return the distribution before `fisher8` is applied: the rule belongs to the loss."
        ) from error


def mean_per_element(values: Array, where: Array | None, axis_name: AxisName | None) -> Array:
    """The mean over all elements where the mask is True and over `axis_name`; 0 if none is."""
    if where is None:
        total, number = jnp.sum(values), jnp.full((), values.size, values.dtype)
    else:
        where = check_mask("where", where, values.shape)
        total = jnp.sum(jnp.where(where, values, 0))
        number = jnp.sum(where, dtype=values.dtype)
    if axis_name is not None:
        check_axis_name_is_bound(axis_name)
        total, number = lax.psum((total, number), axis_name)
    return total / jnp.where(number == 0, 1, number)
