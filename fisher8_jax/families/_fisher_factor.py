"""Square roots of the Fisher information: one lower triangular matrix per element.

`Family.fisher_factor` returns `L` with `F = L L'` over the coordinates of one element, all array
fields in order and each of them flattened. Three ways lead there:

* `diagonal_factor` and `triangular_factor` write down a closed form;
* `factor_from_root` turns any `B` with `F = B' B` into `L`, without squaring its condition;
* `factor_from_dense` takes `F` itself, which may be singular.
"""

import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.batching import cholesky, solve_cholesky


def diagonal_factor(*entries: Array) -> Array:
    """The diagonal matrix with these entries, each of the batch shape."""
    stacked = jnp.stack(entries, axis=-1)
    return stacked[..., None] * _eye_like(stacked)


def triangular_factor(*rows: tuple[Array, ...]) -> Array:
    """The lower triangular matrix with these rows, of one, two, three, ... entries."""
    zero = jnp.zeros_like(rows[0][0])
    full = [jnp.stack([*row, *[zero] * (len(rows) - len(row))], axis=-1) for row in rows]
    return jnp.stack(full, axis=-2)


def block_diagonal(*blocks: Array) -> Array:
    """Square matrices along the diagonal, zero elsewhere."""
    sizes = [block.shape[-1] for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        before, after = sum(sizes[:i]), sum(sizes[i + 1 :])
        padding = [(0, 0)] * (block.ndim - 1) + [(before, after)]
        rows.append(jnp.pad(block, padding))
    return jnp.concatenate(rows, axis=-2)


def multinomial_factor(log_probabilities: Array) -> Array:
    """The lower factor of `diag(p) - p p'`, in logarithms; its last column is 0.

    With the tails `q_j = p_{j+1} + p_{j+2} + ...` the entries are `sqrt(p_j q_j / q_{j-1})` on the
    diagonal and `-p_i sqrt(p_j / (q_j q_{j-1}))` below it.

    Reference:
        Tanabe and Sagae (1992), An exact Cholesky decomposition and the generalized inverse of the
        variance-covariance matrix of the multinomial distribution.
    """
    log_p = log_probabilities
    size = log_p.shape[-1]
    reached = jnp.flip(_log_cumulative_sum(jnp.flip(log_p, -1)), -1)  # q_{j-1}
    tail = jnp.concatenate([reached[..., 1:], jnp.full_like(reached[..., :1], -jnp.inf)], axis=-1)
    diagonal = jnp.exp(0.5 * (log_p + tail - reached))
    column = 0.5 * (log_p - jnp.where(tail == -jnp.inf, 0, tail) - reached)
    below = -jnp.exp(log_p[..., :, None] + column[..., None, :])
    is_below = jnp.tril(jnp.ones((size, size), bool), -1)
    is_below = jnp.broadcast_to(is_below, below.shape)
    return jnp.where(is_below, below, diagonal[..., None] * _eye_like(diagonal))


def factor_from_root(root: Array) -> Array:
    """The lower `L` with a diagonal that is not negative and `L L' = root' root`, by QR."""
    rows, columns = root.shape[-2:]
    if rows < columns:
        root = jnp.pad(root, [(0, 0)] * (root.ndim - 2) + [(0, columns - rows), (0, 0)])
    upper = jnp.linalg.qr(root, mode="r")
    sign = jnp.where(jnp.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1).astype(upper.dtype)
    return jnp.swapaxes(sign[..., None] * upper, -1, -2)


def factor_from_dense(matrix: Array) -> Array:
    """The lower `L` with `L L' = matrix`, which may be singular and of any scale.

    The matrix gets a unit diagonal first; its eigenvalues that rounding has made negative count
    as 0.
    """
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    scale = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    unit = matrix / scale[..., :, None] / scale[..., None, :]
    values, vectors = jnp.linalg.eigh(unit)
    root = jnp.sqrt(jnp.maximum(values, 0))[..., None] * jnp.swapaxes(vectors, -1, -2)
    return scale[..., None] * factor_from_root(root)


def _log_cumulative_sum(x: Array) -> Array:
    return lax.cumlogsumexp(x, axis=x.ndim - 1)


def _eye_like(vector: Array) -> Array:
    eye = jnp.eye(vector.shape[-1], dtype=vector.dtype)
    return eye[(None,) * (vector.ndim - 1)]


def solve_damped(information: Array, vector: Array, damping: float, *, refinements: int) -> Array:
    """`(F + damping * diag(F))^-1 vector`, refined towards `F^-1 vector`.

    Along a direction in which `F`, with its diagonal scaled to 1, has the eigenvalue `e`, the
    relative error is `(damping / (e + damping))^(1 + refinements)`. Directions that change nothing
    are left alone if `vector` has no part along them.

    Args:
        information: shape `(..., p, p)`.
        vector: shape `(..., p)`.
        damping: relative to the diagonal.
        refinements: how often what is left of the equation is solved again.
    """
    diagonal = jnp.diagonal(information, axis1=-2, axis2=-1)
    scale = lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1))
    # With a unit diagonal, damping relative to it is a multiple of the identity.
    unit = information * scale[..., :, None] * scale[..., None, :]
    eye = jnp.eye(unit.shape[-1], dtype=unit.dtype)[(None,) * (unit.ndim - 2)]
    lower = cholesky(unit + damping * eye)
    wanted = (scale * vector)[..., None]
    solved = solve_cholesky(lower, wanted)
    for _ in range(refinements):
        solved = solved + solve_cholesky(lower, wanted - unit @ solved)
    return scale * solved[..., 0]
