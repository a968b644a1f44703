"""Two maps of the paper over the neighbours of a point: Jacobian variance and KL variance.

The first is large where a network spends its capacity unevenly, the second where neighbouring
predictions disagree. Both are exact; memory grows with the number of points, not with its square.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.machinery.balls import Moments, PointBlocks, cut_into_blocks, variance_in_balls
from fisher8_jax.families import Family


def local_jacobian_variance(
    feature_map: Callable[[Array], Array],
    inputs: Array,
    *,
    radius: float,
    reduction: Literal["sum", "mean"] = "sum",
    block_size: int = 256,
    max_entries: int = 2**25,
) -> Array:
    """How much the Jacobian of a feature map varies around each point.

        V_J(x) = mean over x' in ball(x, radius) of || J(x') - mean J ||^2

    Exact for every block size. Memory is about three arrays of `max_entries` numbers: when all
    Jacobians together have more entries, input directions are handled in groups.

    Args:
        feature_map: maps ONE input, of the shape of `inputs[0]`, to an array of features.
        inputs: the points, shape (points,) or (points, ...).
        radius: of the ball, in the units of the inputs; points at exactly this distance count.
        reduction: "sum" over the Jacobian's entries (Fisher8), or their "mean" (Seitzer et al.).
        block_size: points per block; it changes time and memory, not the result.
        max_entries: Jacobian entries held at a time.

    Returns:
        One value per point, at least float32; nan where a Jacobian in the ball is not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([0.0, 1.0, 4.0, 5.0])
        >>> local_jacobian_variance(lambda x: x**2, x, radius=1.0)
        Array([1., 1., 1., 1.], dtype=float32)

    Reference:
        Fisher8, UAI 2026, the one-dimensional study; Seitzer et al., ICLR 2022, with the mean.
    """
    features = jax.eval_shape(feature_map, jax.ShapeDtypeStruct(inputs.shape[1:], inputs.dtype))
    width = max(1, math.prod(features.shape))
    number, dimension = inputs.shape[0], math.prod(inputs.shape[1:])
    blocks = cut_into_blocks(_widen(inputs).reshape(number, dimension), block_size)
    directions = max(1, min(dimension, max_entries // (number * width)))

    def of_directions(tangents: Array) -> Array:
        jacobians = _directional_derivatives(feature_map, inputs, tangents, block_size)
        return _variance_of_vectors(blocks, jacobians, radius)

    parts = lax.map(of_directions, _basis(inputs, directions))
    total = blocks.scatter(parts.sum(axis=0), number)
    return total / (width * dimension) if reduction == "mean" else total


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
    return _kl_variance(dist, inputs, radius, block_size)


def _widen(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _basis(inputs: Array, directions: int) -> Array:
    """Unit tangents in groups: (groups, directions, *input shape); padding is zero, so adds 0."""
    shape = inputs.shape[1:]
    dimension = math.prod(shape)
    groups = math.ceil(dimension / directions)
    unit = jnp.eye(groups * directions, dimension, dtype=inputs.dtype)
    return unit.reshape(groups, directions, *shape)


def _directional_derivatives(
    feature_map: Callable[[Array], Array], inputs: Array, tangents: Array, batch_size: int
) -> Array:
    """The Jacobian times every tangent, flattened: (points, directions * features)."""

    def at(x: Array) -> Array:
        _, push_forward = jax.linearize(feature_map, x)
        return jax.vmap(push_forward)(tangents).reshape(-1)

    return _widen(lax.map(at, inputs, batch_size=batch_size))


@jax.jit
def _variance_of_vectors(blocks: PointBlocks, vectors: Array, radius: float) -> Array:
    """The variance in balls of vectors that depend on the neighbour alone."""
    finite = jnp.all(jnp.isfinite(vectors), axis=-1)
    vectors = jnp.where(finite[:, None], vectors, 0)  # 0 * nan would leak out of the ball
    # In two steps, so that equal vectors give exact zeros.
    vectors = vectors - vectors[:1]
    vectors = blocks.gather(vectors - vectors.mean(axis=0, keepdims=True))
    is_bad = blocks.gather(~finite)

    def tile(row: Array, column: Array, inside: Array) -> Moments:
        inside = inside.astype(vectors.dtype)
        bad = jnp.dot(inside, is_bad[column].astype(vectors.dtype))
        moments = _moments_of_columns(vectors[column], inside)
        return moments._replace(sum_sq=jnp.where(bad > 0, jnp.nan, moments.sum_sq))

    return variance_in_balls(blocks, radius, tile, width=vectors.shape[-1], dtype=vectors.dtype)


def _moments_of_columns(vectors: Array, inside: Array) -> Moments:
    """Moments over the columns inside, by two matrix products around the block's own mean."""
    centre = vectors.mean(axis=0, keepdims=True)
    deviations = vectors - centre
    count = inside.sum(axis=1)
    divisor = jnp.where(count == 0, 1, count)
    mean = jnp.dot(inside, deviations, precision=lax.Precision.HIGHEST) / divisor[:, None]
    squares = jnp.dot(
        inside, jnp.sum(jnp.square(deviations), axis=-1), precision=lax.Precision.HIGHEST
    )
    sum_sq = squares - count * jnp.sum(jnp.square(mean), axis=-1)
    # One point has no spread; for more, only rounding can make the difference negative.
    sum_sq = jnp.where(count > 1, jnp.maximum(sum_sq, 0), 0)
    return Moments(count, mean + centre, sum_sq)


@functools.partial(jax.jit, static_argnames="block_size")
def _kl_variance(dist: Family, inputs: Array, radius: float, block_size: int) -> Array:
    number = inputs.shape[0]
    blocks = cut_into_blocks(_widen(inputs).reshape(number, -1), block_size)
    predictions = jax.tree.map(lambda leaf: blocks.gather(_widen(leaf)), dist)
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
