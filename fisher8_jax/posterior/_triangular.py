"""Inverses from a Cholesky factor by halves: products of matrices, which are fast everywhere."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.batching import solve_lower

# Below this size a triangular solve is as fast, and compiles in less time.
_SMALL = 1024


def inverse_root(factor: Array) -> Array:
    """`L^-1` of a lower `L`."""
    size = factor.shape[0]
    if size <= _SMALL:
        return solve_lower(factor, jnp.eye(size, dtype=factor.dtype))
    half = size // 2
    first, last = inverse_root(factor[:half, :half]), inverse_root(factor[half:, half:])
    below = -last @ (factor[half:, :half] @ first)
    above = jnp.zeros((half, size - half), factor.dtype)
    return jnp.concatenate(
        [jnp.concatenate([first, above], 1), jnp.concatenate([below, last], 1)], 0
    )


def inverse_from(factor: Array) -> Array:
    """`(L L')^-1`."""
    root = inverse_root(factor)
    if root.shape[0] <= _SMALL:
        return root.T @ root
    half = root.shape[0] // 2
    left, right = root[:, :half], root[half:, half:]
    below = right.T @ left[half:]
    return jnp.concatenate(
        [
            jnp.concatenate([left.T @ left, below.T], 1),
            jnp.concatenate([below, right.T @ right], 1),
        ],
        0,
    )


def invert(matrices: np.ndarray) -> np.ndarray:
    """Inverses of symmetric matrices on the host; raises unless they are positive definite."""
    if not np.isfinite(matrices).all():
        raise np.linalg.LinAlgError("not finite")
    np.linalg.cholesky(matrices)
    return np.linalg.inv(matrices)
