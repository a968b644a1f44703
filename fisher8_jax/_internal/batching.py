"""Factorisations under `vmap` that cannot block XLA's threads for ever.

On CPUs, JAX splits a large *batch* of LAPACK factorisations into tasks for XLA's thread pool and
waits for them on a thread of the same pool. As soon as as many batches are in flight as the pool
has threads, one per core, all threads wait and none is left to work: the program hangs for ever.
Two Python threads are enough on two cores, and so are independent batches in one program. A single
matrix is never split, and batches of QR and `eigh` never hung when tried.

`cholesky`, `solve_lower` and `solve_cholesky` are for many small matrices along leading axes; they
can be differentiated in every way.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.lax import linalg

_R = TypeVar("_R")  # an array, or several
_SPLIT_ABOVE = 100_000  # operations; JAX leaves batches of less than 200,000 in one piece


def one_matrix_at_a_time(solve: Callable[..., _R], *, cost: int = 1) -> Callable[..., _R]:
    """Makes a function of one matrix, and other arrays, safe under `vmap` on CPUs.

    There, `vmap` becomes a loop over the matrices, or over pieces of the batch if they are small.
    LAPACK has threads of its own for a large matrix. Elsewhere, `vmap` does what it always does.
    The function can be differentiated forwards, not backwards: see `jax.lax.custom_linear_solve`.
    `cost` is that of one call in units of the cube of the longest axis: some 30 for `svd`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> @one_matrix_at_a_time
        ... def solve(matrix, vector):
        ...     return jnp.linalg.solve(matrix, vector)
        >>> matrices = jnp.broadcast_to(2 * jnp.eye(64), (4, 64, 64))
        >>> jax.vmap(solve)(matrices, jnp.ones((4, 64))).shape
        (4, 64)
    """
    return functools.wraps(solve)(_guarded(solve, cost, None))


def _guarded(solve: Callable[..., _R], cost: int, operations: int | None) -> Callable[..., _R]:
    """The same for a function of a few matrices that are `operations` of work together."""
    one = custom_vmap(solve)

    @one.def_vmap
    def batch(size: int, is_batched: Sequence[bool], *args: Array) -> tuple[Any, Any]:
        results = batched(size, is_batched, *args)
        return results, jax.tree.map(lambda _: True, results)

    def batched(size: int, is_batched: Sequence[bool], *args: Array) -> Any:
        together = jax.vmap(solve, tuple(0 if batched else None for batched in is_batched))
        each = cost * _operations(args, is_batched) if operations is None else operations
        if size * each <= _SPLIT_ABOVE:
            return _guarded(together, cost, size * each)(*args)
        in_turn = functools.partial(_in_turn, one, is_batched, _SPLIT_ABOVE // each)
        return lax.platform_dependent(*args, cpu=in_turn, default=together)

    return one


def _in_turn(one: Callable[..., _R], is_batched: Sequence[bool], piece: int, *args: Array) -> _R:
    def of_row(rows: tuple[Array, ...]) -> _R:
        now = iter(rows)
        chosen = (next(now) if b else arg for arg, b in zip(args, is_batched, strict=True))
        return one(*chosen)

    batched = tuple(arg for arg, b in zip(args, is_batched, strict=True) if b)
    return lax.map(of_row, batched, batch_size=piece if piece > 1 else None)


def _operations(args: Sequence[Array], is_batched: Sequence[bool]) -> int:
    """An upper bound on those of one factorisation: the cube of the longest axis."""
    shapes = (np.shape(arg)[batched:] for arg, batched in zip(args, is_batched, strict=True))
    return max((max(shape, default=1) for shape in shapes), default=1) ** 3


def _along_leading_axes(solve: Callable[..., Array]) -> Callable[..., Array]:
    """The same for arrays with leading axes, which `vmap` shows to the guard."""
    guarded = one_matrix_at_a_time(solve)

    def mapped(*args: Array) -> Array:
        function = guarded
        for _ in range(args[0].ndim - 2):
            function = jax.vmap(function)
        return function(*args)

    return mapped


_forward = _along_leading_axes(
    lambda factor, right: linalg.triangular_solve(factor, right, left_side=True, lower=True)
)
_backward = _along_leading_axes(
    lambda factor, right: linalg.triangular_solve(
        factor, right, left_side=True, lower=True, transpose_a=True
    )
)
_factorise = _along_leading_axes(lambda matrix: linalg.cholesky(matrix, symmetrize_input=False))
_multiply = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def solve_lower(factor: Array, right: Array, *, transpose: bool = False) -> Array:
    """`factor^-1 right`, or with `transpose` `factor'^-1 right`.

    Args:
        factor: lower triangular matrices, shape `(..., d, d)`.
        right: shape `(..., d, k)`, with the same leading axes.
        transpose: whether the factor is transposed.
    """
    dtype = jnp.promote_types(factor.dtype, right.dtype)
    factor, right = factor.astype(dtype), right.astype(dtype)
    matrix = _swap(factor) if transpose else factor
    solve, solve_transposed = (_backward, _forward) if transpose else (_forward, _backward)
    fixed = lax.stop_gradient(factor)  # derivatives come from the product
    return lax.custom_linear_solve(
        functools.partial(_multiply, matrix),
        right,
        lambda _, b: solve(fixed, b),
        lambda _, b: solve_transposed(fixed, b),
    )


def solve_cholesky(factor: Array, right: Array) -> Array:
    """`(factor factor')^-1 right`; shapes as in `solve_lower`."""
    return solve_lower(factor, solve_lower(factor, right), transpose=True)


def cholesky(matrix: Array) -> Array:
    """The lower Cholesky factors of symmetric matrices, shape `(..., d, d)`."""
    return _cholesky(0.5 * (matrix + _swap(matrix)))


@jax.custom_jvp
def _cholesky(matrix: Array) -> Array:
    return _factorise(matrix)


@_cholesky.defjvp
def _cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """`L times the lower half of L^-1 dA L'^-1`, half of its diagonal."""
    factor = _cholesky(*primals)
    whitened = solve_lower(factor, _swap(solve_lower(factor, *tangents)))
    size = factor.shape[-1]
    half = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)
    lead = (None,) * (factor.ndim - 2)
    return factor, _multiply(factor, whitened * jnp.asarray(half[lead], factor.dtype))


def _swap(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)
