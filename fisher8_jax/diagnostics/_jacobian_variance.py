"""Local Jacobian variance: where a network spends its capacity unevenly."""

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.checks import check_count, check_positive
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.diagnostics._balls import Moments, PointBlocks, cut_into_blocks, variance_in_balls
from fisher8_jax.diagnostics._diagnostic_checks import check_inputs


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
    inputs = check_inputs(inputs)
    check_positive("radius", radius)
    check_count("block_size", block_size)
    check_count("max_entries", max_entries)
    if reduction not in ("sum", "mean"):
        raise ValueError(f'`reduction` must be "sum" or "mean", got {reduction!r}.')
    width = _feature_width(feature_map, inputs)
    number, dimension = inputs.shape[0], math.prod(inputs.shape[1:])
    blocks = cut_into_blocks(at_least_float32(inputs).reshape(number, dimension), block_size)
    directions = max(1, min(dimension, max_entries // (number * width)))

    def of_directions(tangents: Array) -> Array:
        jacobians = _directional_derivatives(feature_map, inputs, tangents, block_size)
        return _variance_of_vectors(blocks, jacobians, radius)

    parts = lax.map(of_directions, _basis(inputs, directions))
    total = blocks.scatter(parts.sum(axis=0), number)
    return total / (width * dimension) if reduction == "mean" else total


def _feature_width(feature_map: Callable[[Array], Array], inputs: Array) -> int:
    features = jax.eval_shape(feature_map, jax.ShapeDtypeStruct(inputs.shape[1:], inputs.dtype))
    if not isinstance(features, jax.ShapeDtypeStruct):
        raise TypeError(
            f"`feature_map` must return one array, got {type(features).__name__}. "
            "Select or concatenate the features of one layer."
        )
    return max(1, math.prod(features.shape))


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

    return at_least_float32(lax.map(at, inputs, batch_size=batch_size))


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
