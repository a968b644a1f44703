"""In which arithmetic a posterior is computed, and how many rows at a time.

The matrix to factorise is the identity plus a Gram matrix whose eigenvalues reach 1e6 and more.
Rounding of that Gram matrix in float32 is then larger than the identity. So the network itself and
all matrices are evaluated in float64 by default, inside `jax.enable_x64`, whatever the program
around uses. Under a transformation such as `jax.jit` the arithmetic of the program around applies.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree

from fisher8_jax._internal.checks import check_choice

Tree = TypeVar("Tree")


def check_dtype(dtype: str) -> str:
    """Returns a known name of an arithmetic."""
    check_choice("dtype", dtype, ("float64", "float32"))
    return dtype


def arithmetic(dtype: str, *trees: ArrayTree) -> contextlib.AbstractContextManager[Any]:
    """The context in which to compute with trees; none if one of them is being traced."""
    if dtype != "float64" or is_traced(*trees):
        return contextlib.nullcontext()
    return jax.enable_x64(True)


def is_traced(*trees: ArrayTree) -> bool:
    """Whether some leaf has no value yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def cast(tree: Tree, dtype: str) -> Tree:
    """Floating-point leaves as NumPy arrays of a dtype; tracers stay as they are."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            return leaf
        array = np.asarray(leaf)
        return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array

    converted: Tree = jax.tree.map(convert, tree)
    return converted


def to_host(tree: ArrayTree) -> Any:
    """All leaves as NumPy arrays, which `jax.jit` takes in whatever arithmetic it is called in."""
    return jax.tree.map(np.asarray, tree)


def in_chunks(function: Callable[[Any], Tree], tree: ArrayTree, chunk: int) -> Tree:
    """`function` of some rows of `tree` at a time, its results joined as NumPy arrays.

    Args:
        function: of a tree with `chunk` rows, or the next power of two if there are fewer, so that
            one compiled program serves many sizes. The last row is repeated to fill up.
        tree: arrays whose first axis is the rows; so is that of the results.
        chunk: how many rows at a time.
    """
    if is_traced(tree):
        return function(tree)
    rows = jax.tree.leaves(tree)[0].shape[0]
    chunk = min(chunk, 1 << (rows - 1).bit_length())
    parts = []
    for start in range(0, rows, chunk):
        places = np.minimum(np.arange(start, start + chunk), rows - 1)
        part = function(jax.tree.map(lambda x, places=places: np.asarray(x)[places], tree))
        parts.append(to_host(part))
    joined: Tree = jax.tree.map(lambda *arrays: np.concatenate(arrays)[:rows], *parts)
    return joined
