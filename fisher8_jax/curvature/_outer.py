"""Uses whose Jacobian rows are sums of outer products, which need not be formed.

Where a kernel meets an activation in a matrix product, the row of the Jacobian that belongs to
example `i` and output `c` is a sum over positions `t` (of a sequence, of an image),

    row_ic = sum_t a_it d_ict'

with the activation `a` and the back-propagated `d`. A convolution is the same with patches for `a`.
Which of the axes are contracted, and in which order entries stand, does not matter to the Gram
matrix as long as it is the same for all uses of a leaf.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fisher8_jax.curvature._patches import image_patches
from fisher8_jax.curvature._walk import Alias, Use


class Outer(NamedTuple):
    """How a use becomes outer products.

    Attributes:
        leaf: which parameter.
        layout: equal for uses whose outer products have the same order of entries.
        positions: how many outer products an example adds up.
        inner: the length of `a`.
        outer: the length of `d`.
        activation: from the data operand, one example a row, to `(rows, positions, inner)`.
        delta: from a cotangent, `(rows, ...)`, to `(rows, positions, outer)`.
        data: the place of the data operand.
        inner_axes: the axes of the leaf that `a` runs over, in order; None if these mix.
        outer_axes: those that `d` runs over.
    """

    leaf: int
    layout: tuple[object, ...]
    positions: int
    inner: int
    outer: int
    activation: Callable[[Array], Array]
    delta: Callable[[Array], Array]
    data: int
    inner_axes: tuple[int, ...] | None
    outer_axes: tuple[int, ...]


def as_outer(use: Use) -> Outer | None:
    """The outer products of a use, or None where it has another form."""
    parametric = [place for place, operand in enumerate(use.operands) if operand.is_parametric]
    if len(parametric) != 1 or use.equation is None:
        return None
    alias = use.operands[parametric[0]].alias
    if alias is None:
        return None
    if use.name == "dot_general":
        return _matrix_product(use, parametric[0], alias)
    if use.name == "conv_general_dilated" and parametric == [1]:
        return _convolution(use, alias)
    return None


def _matrix_product(use: Use, place: int, alias: Alias) -> Outer | None:
    assert use.equation is not None
    contracted, batched = use.equation.params["dimension_numbers"]
    if any(batched):
        return None
    data = 1 - place
    kernel, activation = use.operands[place].aval.shape, use.operands[data].aval.shape
    summed = tuple(contracted[data])
    free = tuple(axis for axis in range(len(activation)) if axis not in summed)
    positions = math.prod(activation[axis] for axis in free)
    inner = math.prod(activation[axis] for axis in summed)
    outer = math.prod(kernel) // max(inner, 1)

    def arrange(x: Array) -> Array:
        rows = x.shape[0]
        x = jnp.transpose(x, (0, *(axis + 1 for axis in (*free, *summed))))
        return x.reshape(rows, positions, inner)

    def delta(x: Array) -> Array:
        if place == 1:  # the axes of the first operand come first
            return x.reshape(x.shape[0], positions, outer)
        return jnp.swapaxes(x.reshape(x.shape[0], outer, positions), 1, 2)

    layout = (*alias.path, tuple(contracted[place]))
    rest = [axis for axis in range(len(kernel)) if axis not in contracted[place]]
    axes = _split(alias, contracted[place], rest)
    return Outer(alias.leaf, layout, positions, inner, outer, arrange, delta, data, *axes)


def _convolution(use: Use, alias: Alias) -> Outer | None:
    assert use.equation is not None
    params = use.equation.params
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return None
    numbers = params["dimension_numbers"]
    kernel, image = use.operands[1].aval.shape, use.operands[0].aval.shape
    result = use.outputs[0].shape
    window = [kernel[axis] for axis in numbers.rhs_spec[2:]]
    space = [result[axis] for axis in numbers.out_spec[2:]]
    positions = image[numbers.lhs_spec[0]] * math.prod(space)
    outer = kernel[numbers.rhs_spec[0]]
    inner = math.prod(kernel) // max(outer, 1)

    def patches(x: Array) -> Array:
        rows = x.shape[0]
        x = jnp.transpose(x, (0, *(axis + 1 for axis in numbers.lhs_spec)))
        flat = x.reshape(rows * x.shape[1], *x.shape[2:])
        return image_patches(flat, params, window, space).reshape(rows, positions, inner)

    def delta(x: Array) -> Array:
        channels_last = (numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1])
        x = jnp.transpose(x, (0, *(axis + 1 for axis in channels_last)))
        return x.reshape(x.shape[0], positions, outer)

    layout = (*alias.path, "patches", numbers.rhs_spec)
    axes = _split(alias, (*numbers.rhs_spec[2:], numbers.rhs_spec[1]), numbers.rhs_spec[:1])
    return Outer(alias.leaf, layout, positions, inner, outer, patches, delta, 0, *axes)


def _split(
    alias: Alias, inner: Sequence[int], outer: Sequence[int]
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The axes of the leaf that stand in these places of its alias."""
    axes = alias.axes
    if axes is None:
        return None, ()
    return tuple(axes[axis] for axis in inner), tuple(axes[axis] for axis in outer)
