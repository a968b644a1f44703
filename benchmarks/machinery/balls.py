"""Variances over the neighbours within a radius, exact, block by block, in any dimension.

The points are ordered by repeated median splits along the widest coordinate, as in a k-d tree, and
cut into blocks of nearby points. A pair of blocks whose bounding boxes are farther apart than the
radius is never looked at; every other pair is one small tile. Tiles are merged by the pairwise
update of counts, means and sums of squares, which subtracts no large numbers, so the result keeps
its digits where a running sum over a sorted axis would lose them. Memory grows with the number of
points, not with its square. In one dimension the order is a sort and the blocks are intervals.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax


class Moments(NamedTuple):
    """Number, mean and squared deviations of vectors; shapes (rows,), (rows, width), (rows,).

    The squared deviations are summed over the sample and over the entries of the vector.
    """

    number: Array
    mean: Array
    sum_sq: Array


class PointBlocks(NamedTuple):
    """Points in blocks of neighbours: shapes (blocks, size, dimension) and (blocks, size) twice."""

    points: Array
    row: Array
    is_real: Array

    def gather(self, values: Array) -> Array:
        """Values per point, arranged like the blocks."""
        return values[self.row]

    def scatter(self, values: Array, number: int) -> Array:
        """Values per block entry, back in the order of the `number` points."""
        row = jnp.where(self.is_real, self.row, number)  # out of bounds, hence dropped
        return jnp.zeros(number, values.dtype).at[row].set(values, mode="drop")


# Of two block numbers and the mask of pairs within the radius (rows, columns).
TileMoments = Callable[[Array, Array, Array], Moments]


@functools.partial(jax.jit, static_argnames="block_size")
def cut_into_blocks(points: Array, block_size: int) -> PointBlocks:
    """Orders points of shape (number, dimension) and cuts them into 2^k blocks of equal size."""
    number, dimension = points.shape
    levels = max(0, math.ceil(math.log2(number / block_size)))
    size = math.ceil(number / 2**levels)
    order = jnp.arange(2**levels * size)
    for level in range(levels):
        # Padding repeats the last point, so that no bounding box grows.
        groups = points[jnp.minimum(order, number - 1)].reshape(2**level, -1, dimension)
        widest = jnp.argmax(groups.max(1) - groups.min(1), axis=-1)
        key = jnp.take_along_axis(groups, widest[:, None, None], axis=2)[..., 0]
        within = jnp.argsort(key, axis=1)
        order = jnp.take_along_axis(order.reshape(2**level, -1), within, axis=1).reshape(-1)
    order = order.reshape(-1, size)
    row = jnp.minimum(order, number - 1)
    return PointBlocks(points[row], row, order < number)


def variance_in_balls(
    blocks: PointBlocks, radius: Array | float, tile: TileMoments, *, width: int, dtype: jnp.dtype
) -> Array:
    """The population variance over every point's ball, arranged like the blocks."""
    number, size, _ = blocks.points.shape
    order, near = _near_blocks(blocks, radius)
    empty = Moments(jnp.zeros(size, dtype), jnp.zeros((size, width), dtype), jnp.zeros(size, dtype))

    def of_row_block(row: Array) -> Array:
        def add(k: Array, moments: Moments) -> Moments:
            column = order[row, k]
            gap = blocks.points[row][:, None, :] - blocks.points[column][None, :, :]
            # The root, not the square of the radius: in 1-D it is |x - x'| to the last bit.
            inside = jnp.sqrt(jnp.sum(jnp.square(gap), axis=-1)) <= radius
            inside = inside & blocks.is_real[column][None, :]
            return merge(moments, tile(row, column, inside))

        moments = lax.fori_loop(0, near[row], add, empty)
        return moments.sum_sq / moments.number

    return lax.map(of_row_block, jnp.arange(number))


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of two samples together (Chan, Golub and LeVeque 1979)."""
    number = a.number + b.number
    share = b.number / jnp.where(number == 0, 1, number)
    shift = b.mean - a.mean
    mean = a.mean + share[:, None] * shift
    sum_sq = a.sum_sq + b.sum_sq + a.number * share * jnp.sum(jnp.square(shift), axis=-1)
    return Moments(number, mean, sum_sq)


def _near_blocks(blocks: PointBlocks, radius: Array | float) -> tuple[Array, Array]:
    """For every block the others, near ones first, and how many are near."""
    low, high = blocks.points.min(axis=1), blocks.points.max(axis=1)

    def is_near(low_here: Array, high_here: Array) -> Array:
        gap = jnp.maximum(low_here[None] - high, low - high_here[None])
        distance = jnp.sqrt(jnp.sum(jnp.square(jnp.maximum(gap, 0)), axis=-1))
        return distance <= radius * (1 + 1e-3)  # rounding may only add blocks

    near = lax.map(lambda box: is_near(*box), (low, high))
    return jnp.argsort(~near, axis=1), near.sum(axis=1)
