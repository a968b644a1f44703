"""What is known of network and rows before anything is computed, and whether they fit together."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_targets
from fisher8_jax.curvature import LeafRows, jacobian_rows
from fisher8_jax.families import Family
from fisher8_jax.posterior._network import PredictOne
from fisher8_jax.posterior._prior import leaf_names


class Setting(NamedTuple):
    """What a network says about itself.

    Attributes:
        reached: for every leaf, whether it is not empty and reaches the predictions.
        outputs: of one row.
        positions: the largest number of outer products that a leaf adds up for one row.
        dtype: the narrowest of the predictions' dtypes.
    """

    reached: list[bool]
    outputs: int
    positions: int
    dtype: str


def check_data(params: ArrayTree, inputs: ArrayTree, targets: Array) -> None:
    """Raises unless there are rows, and the parameters are finite."""
    shapes = [np.shape(x) for x in jax.tree.leaves(inputs)]
    lengths = {shape[0] if shape else None for shape in [*shapes, np.shape(targets)]}
    if not shapes or len(lengths) > 1 or None in lengths:
        raise ValueError(
            "`inputs` and `targets` must share their first axis, the rows, got shapes "
            f"{shapes} and {np.shape(targets)}."
        )
    if lengths == {0}:
        raise ValueError("`inputs` and `targets` must have at least one row, got none.")
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.all(np.isfinite(leaf)):
            raise ValueError(
                f"`params` has values that are not finite at {name!r}. A posterior needs the "
                "parameters of a training that ended well."
            )


def examine(
    predict_one: PredictOne, params: ArrayTree, inputs: ArrayTree, targets: Array
) -> Setting:
    """Looks at the first row, and checks the targets against its prediction."""
    one = jax.tree.map(lambda x: x[:1], inputs)
    first = _predict.eval_shape(predict_one, params, one)
    _check_targets(first, targets)
    rows = _rows.eval_shape(predict_one, params, one)
    sizes = map(np.size, jax.tree.leaves(params))
    found = [row for row in rows if row is not None]
    positions = [1 if row.activation is None else row.activation.shape[1] for row in found]
    return Setting(
        [row is not None and size > 0 for row, size in zip(rows, sizes, strict=True)],
        max((row.delta.shape[0] for row in found), default=0),
        max(positions, default=1),
        min((x.dtype for x in jax.tree.leaves(first)), key=lambda d: d.itemsize).name,
    )


# Compiled functions, though never run, remember the shapes that they have found.
@functools.partial(jax.jit, static_argnums=0)
def _predict(predict_one: PredictOne, params: ArrayTree, inputs: ArrayTree) -> Family:
    return jax.vmap(predict_one, (None, 0))(params, inputs)


@functools.partial(jax.jit, static_argnums=0)
def _rows(
    predict_one: PredictOne, params: ArrayTree, inputs: ArrayTree
) -> tuple[LeafRows | None, ...]:
    return jacobian_rows(predict_one, params, inputs)[1]


def _check_targets(first: Family, targets: Array) -> None:
    """Shape and support, by the shapes of the first row's prediction."""
    check_family("the result of `predict_one`", first)
    rows = len(targets)
    zeros = jax.tree.map(lambda x: np.zeros((rows, *x.shape[1:]), x.dtype), first)
    check_targets(targets, (*zeros.batch_shape, *zeros.event_shape))
    zeros.check_support(targets)
