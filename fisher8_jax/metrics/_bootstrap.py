"""Percentile bootstrap: how much would a metric change with another test set of this size?

Examples are drawn with replacement from the unmasked ones. Every metric is a function of means, so
a resample is a row of counts, and all means of many resamples are one matrix product.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from fisher8_jax._internal.trees import register_tree

# Counts of one chunk of resamples; 4 million float32 are 16 MiB.
_COUNTS_IN_MEMORY = 1 << 22


Finished = TypeVar("Finished")


@register_tree
@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """How `evaluate` draws its bootstrap intervals.

    Args:
        key: a key of `jax.random`.
        resamples: how many test sets are drawn.
        confidence: the level of the intervals.

    Example:
        >>> import jax
        >>> Bootstrap(jax.random.key(0)).resamples
        1000

    Reference:
        Efron and Tibshirani, An introduction to the bootstrap, 1993, chapter 13.
    """

    key: Array
    resamples: int = dataclasses.field(default=1000, metadata={"static": True})
    confidence: float = dataclasses.field(default=0.95, metadata={"static": True})


def bootstrap_bounds(
    bootstrap: Bootstrap,
    rows: dict[str, Array],
    counts: Array,
    finish: Callable[[dict[str, Array]], Finished],
) -> tuple[Finished, Finished]:
    """Percentile bounds of `finish(means)` over resampled rows.

    Args:
        bootstrap: key, number and level.
        rows: sums by name, rows in front and statistics behind, `(n, *rest, k)`.
        counts: how many elements each row holds, `(n, *rest, 1)`.
        finish: from means by name, `(*rest, k)`, to a tree of metrics.

    Returns:
        Two trees of metrics, the lower and the upper ends.
    """
    names, rest = list(rows), counts.shape[1:-1]
    splits = np.cumsum([rows[name].shape[-1] for name in names]).tolist()
    # One matrix and one vector of metrics: many small products and sorts take long to compile.
    table = jnp.concatenate([*rows.values(), counts], axis=-1).reshape(counts.shape[0], -1)
    has_points = jnp.any(counts.reshape(counts.shape[0], -1) > 0, axis=1)

    def metrics(sums: Array) -> Finished:
        *columns, number = jnp.split(sums.reshape(*rest, -1), splits, axis=-1)
        return finish({name: c / number for name, c in zip(names, columns, strict=True)})

    def resample(key: Array) -> Array:
        weights = draw_counts(key, has_points).astype(table.dtype)
        sums = jnp.dot(weights, table, precision=lax.Precision.HIGHEST)
        return ravel_pytree(metrics(sums))[0]

    keys = jax.random.split(bootstrap.key, bootstrap.resamples)
    chunk = max(1, _COUNTS_IN_MEMORY // max(1, counts.shape[0]))
    if chunk >= bootstrap.resamples:
        replicates = jax.vmap(resample)(keys)
    else:
        replicates = lax.map(resample, keys, batch_size=chunk)
    tail = 0.5 * (1 - bootstrap.confidence)
    # A resample may miss the few unmasked points of one target; it says nothing about that one.
    lower, upper = jnp.nanquantile(replicates, jnp.asarray([tail, 1 - tail]), axis=0)
    _, unravel = ravel_pytree(metrics(jnp.sum(table, axis=0)))
    return unravel(lower), unravel(upper)


def draw_counts(key: Array, has_points: Array) -> Array:
    """How often each row occurs among as many draws with replacement as there are usable rows."""
    n = has_points.shape[0]
    usable = jnp.sum(has_points, dtype=jnp.uint32)
    usable_first = jnp.argsort(~has_points, stable=True)
    # The remainder favours low numbers by usable / 2^32, which nothing can see, and compiles in
    # half the time of `jax.random.randint`.
    drawn = jax.random.bits(key, (n,), jnp.uint32) % jnp.maximum(usable, 1)
    is_draw = (jnp.arange(n) < usable).astype(jnp.int32)
    return jnp.zeros(n, jnp.int32).at[usable_first[drawn]].add(is_draw)
