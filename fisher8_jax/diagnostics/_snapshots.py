"""Any diagnostic of the parameters, followed along training."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax


def along_training(
    diagnostic: Callable[[chex.ArrayTree], Array], snapshots: chex.ArrayTree
) -> Array:
    """A diagnostic of every parameter snapshot: the rows of a heat map over training.

    Args:
        diagnostic: maps one tree of parameters to an array, for instance
            `lambda params: local_kl_variance(predict(params, x), x, radius=0.5)`.
        snapshots: one tree whose leaves have a leading snapshot axis, as `jax.lax.scan` returns it.
            Stack a list of trees with `jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)`.

    Returns:
        The diagnostics, stacked along a new first axis: (snapshots, points).

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.diagnostics import local_jacobian_variance
        >>> x = jnp.linspace(0.0, 1.0, 3)
        >>> def jacobian_variance(a):
        ...     return local_jacobian_variance(lambda x: a * x**2, x, radius=0.5)
        >>> along_training(jacobian_variance, jnp.array([0.0, 2.0])).tolist()
        [[0.0, 0.0, 0.0], [1.0, 2.6666667461395264, 1.0]]
    """
    leaves = jax.tree.leaves(snapshots)
    lengths = {leaf.shape[:1] for leaf in map(jnp.asarray, leaves)}
    if len(lengths) != 1 or () in lengths:
        shapes = sorted({jnp.shape(leaf) for leaf in leaves})
        raise ValueError(
            "`snapshots` must be one tree whose leaves share a leading snapshot axis, got leaves "
            f"of shapes {shapes}. Stack a list of trees with "
            "`jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)`."
        )
    return lax.map(diagnostic, snapshots)
