"""Factorisations under `vmap` that cannot block XLA's threads for ever.

On CPUs, JAX splits a large *batch* of LAPACK factorisations into tasks for XLA's thread pool and
waits for them on a thread of the same pool. As soon as as many batches are in flight as the pool
has threads, one per core, all threads wait and none is left to work: the program hangs for ever.
Two Python threads are enough on two cores, and so are independent batches in one program. A single
matrix is never split.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

_SPLIT_ABOVE = 100_000  # operations; JAX leaves batches of less than 200,000 in one piece


def one_matrix_at_a_time(solve: Callable[..., Array]) -> Callable[..., Array]:
    """Makes a function of one matrix, and other arrays, safe under `vmap` on CPUs.

    There, `vmap` becomes a loop over the matrices unless they are few and small. LAPACK has threads
    of its own for a large matrix. Elsewhere, `vmap` does what it always does. The function can be
    differentiated forwards, not backwards: see `jax.lax.custom_linear_solve`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> @one_matrix_at_a_time
        ... def solve(matrix, vector):
        ...     return jnp.linalg.solve(matrix, vector)
        >>> matrices = jnp.broadcast_to(2 * jnp.eye(64), (4, 64, 64))
        >>> jax.vmap(solve)(matrices, jnp.ones((4, 64))).shape
        (4, 64)
    """
    return functools.wraps(solve)(_guarded(solve, None))


def _guarded(solve: Callable[..., Array], operations: int | None) -> Callable[..., Array]:
    """The same for a function of a few matrices that are `operations` of work together."""
    one = custom_vmap(solve)

    @one.def_vmap
    def batch(size: int, is_batched: Sequence[bool], *args: Array) -> tuple[Array, bool]:
        together = jax.vmap(solve, tuple(0 if batched else None for batched in is_batched))
        total = size * (_operations(args, is_batched) if operations is None else operations)
        if total <= _SPLIT_ABOVE:
            return _guarded(together, total)(*args), True
        in_turn = functools.partial(_in_turn, one, is_batched)
        return lax.platform_dependent(*args, cpu=in_turn, default=together), True

    return one


def _in_turn(one: Callable[..., Array], is_batched: Sequence[bool], *args: Array) -> Array:
    def of_row(rows: tuple[Array, ...]) -> Array:
        now = iter(rows)
        chosen = (next(now) if b else arg for arg, b in zip(args, is_batched, strict=True))
        return one(*chosen)

    batched = tuple(arg for arg, b in zip(args, is_batched, strict=True) if b)
    return lax.map(of_row, batched)


def _operations(args: Sequence[Array], is_batched: Sequence[bool]) -> int:
    """An upper bound on those of one factorisation: the cube of the longest axis."""
    shapes = (np.shape(arg)[batched:] for arg, batched in zip(args, is_batched, strict=True))
    return max((max(shape, default=1) for shape in shapes), default=1) ** 3
