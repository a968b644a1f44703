"""The Jacobian of a network's outputs, leaf by leaf, for those who multiply it by another one."""

import dataclasses

import jax.numpy as jnp
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.curvature._gram import LeafRows, leaf_rows
from fisher8_jax.curvature._leaf_forms import make_plan
from fisher8_jax.curvature._problem import Mask, Whitening, pose
from fisher8_jax.curvature._trace import PredictOne
from fisher8_jax.families import Family

# The form of a leaf depends on how many rows meet. Rows of different calls must have the same form
# to be multiplied, so it is chosen for this number whatever the batch.
_PLANNED_ROWS = 64


def jacobian_rows(
    predict_one: PredictOne, params: ArrayTree, inputs: ArrayTree
) -> tuple[Family, tuple[LeafRows | None, ...]]:
    """The predictions of a batch and the rows of their Jacobian, one entry for each leaf.

    Outputs are the coordinates of `to_vector` of all elements of an example, not whitened. Rows of
    two batches may be multiplied with each other; no dense Jacobian is formed where an example's
    row is a sum of few outer products.

    Args:
        predict_one: `predict_one(params, example) -> distribution` of one example, no batch axis.
        params: the parameters, any pytree.
        inputs: a pytree of arrays whose first axis is the batch.

    Returns:
        The predictions, and `LeafRows` in the order of `jax.tree.leaves(params)`; None for leaves
        that reach no prediction or are not floating-point.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.curvature import jacobian_rows
        >>> def predict_one(params, x):
        ...     return Gaussian(*(x @ params))
        >>> dist, (rows,) = jacobian_rows(predict_one, jnp.ones((3, 2)), jnp.ones((4, 3)))
        >>> rows.activation.shape, rows.delta.shape, rows.own_gram()[0].tolist()
        ((4, 1, 3), (2, 4, 1, 2), [[3.0, 0.0], [0.0, 3.0]])
    """
    problem = pose(predict_one, params, inputs, damping=1.0, mask=Mask(None, None), axis_name=None)
    change = _identity(problem.dist)
    plan = make_plan(problem.network, _PLANNED_ROWS, change.outputs)
    raw = dataclasses.replace(problem, whitening=change, plan=plan)
    found = leaf_rows(raw)
    return raw.dist, tuple(found.get(index) for index in range(len(raw.leaves)))


def _identity(dist: Family) -> Whitening:
    """Outputs in their own coordinates."""
    vector: Array = at_least_float32(dist.to_vector())
    eye = jnp.eye(vector.shape[-1], dtype=vector.dtype)
    return Whitening(jnp.broadcast_to(eye, (*vector.shape, eye.shape[0])), None, is_weighted=False)
