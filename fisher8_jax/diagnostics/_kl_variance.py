"""Local KL variance: where neighbouring predictions disagree."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_count, check_positive
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.diagnostics._balls import Moments, cut_into_blocks, variance_in_balls
from fisher8_jax.diagnostics._diagnostic_checks import (
    check_inputs,
    check_same_length,
)
from fisher8_jax.families import Family


def local_kl_variance(
    dist: Family, inputs: Array, *, radius: float, block_size: int = 256
) -> Array:
    """How much the divergence from a point's prediction varies around that point.

        V_KL(x) = variance over x' in ball(x, radius) of KL(p_x || p_x')

    The population variance, the point itself included with a divergence of 0. Further axes of the
    batch shape are independent targets of one point: their divergences add.

    Args:
        dist: the predictions at `inputs`, any family; batch shape (points,) or (points, ...).
        inputs: the points, shape (points,) or (points, ...).
        radius: of the ball, in the units of the inputs; points at exactly this distance count.
        block_size: points per block; it changes time and memory, not the result.

    Returns:
        One value per point, at least float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(mean=jnp.array([0.0, 0.0, 2.0]), log_variance=jnp.zeros(3))
        >>> local_kl_variance(dist, jnp.array([0.0, 1.0, 2.0]), radius=1.0).round(4)
        Array([0.    , 0.8889, 1.    ], dtype=float32)

    Reference:
        Fisher8, UAI 2026, the one-dimensional study.
    """
    check_family("`dist`", dist)
    inputs = check_inputs(inputs)
    check_same_length(dist, inputs)
    check_positive("radius", radius)
    check_count("block_size", block_size)
    return _kl_variance(dist, inputs, radius, block_size)


@functools.partial(jax.jit, static_argnames="block_size")
def _kl_variance(dist: Family, inputs: Array, radius: float, block_size: int) -> Array:
    number = inputs.shape[0]
    blocks = cut_into_blocks(at_least_float32(inputs).reshape(number, -1), block_size)
    predictions = jax.tree.map(lambda leaf: blocks.gather(at_least_float32(leaf)), dist)
    dtype = jax.tree.leaves(predictions)[0].dtype

    def tile(row: Array, column: Array, inside: Array) -> Moments:
        divergence = _pairwise_kl(
            jax.tree.map(lambda leaf: leaf[row], predictions),
            jax.tree.map(lambda leaf: leaf[column], predictions),
        )
        return _moments_of_pairs(divergence, inside)

    variances = variance_in_balls(blocks, radius, tile, width=1, dtype=dtype)
    return blocks.scatter(variances, number)


def _pairwise_kl(rows: Family, columns: Family) -> Array:
    """`KL(row || column)` for every pair, summed over further batch axes."""
    shape = (rows.batch_shape[0], columns.batch_shape[0])

    def spread(leaf: Array, axis: int) -> Array:
        return jnp.broadcast_to(jnp.expand_dims(leaf, axis), shape + leaf.shape[1:])

    here = jax.tree.map(lambda leaf: spread(leaf, 1), rows)
    there = jax.tree.map(lambda leaf: spread(leaf, 0), columns)
    divergence = here.kl(there)
    return divergence.reshape(*shape, -1).sum(axis=-1)


def _moments_of_pairs(values: Array, inside: Array) -> Moments:
    count = inside.sum(axis=1).astype(values.dtype)
    divisor = jnp.where(count == 0, 1, count)
    mean = jnp.sum(jnp.where(inside, values, 0), axis=1) / divisor
    deviations = jnp.where(inside, values - mean[:, None], 0)
    return Moments(count, mean[:, None], jnp.sum(jnp.square(deviations), axis=1))
