"""How each parameter leaf enters the Gram matrix, decided by shapes alone.

Where a kernel meets an activation in a matrix product, the row of the Jacobian that belongs to
example `i` and output `c` is a sum of outer products over positions `t` (of a sequence, an image),

    row_ic = sum_t a_it d_ict'

with the activation `a` and the back-propagated `d`. A convolution is the same with patches for `a`.
The Gram matrix of such a leaf follows from `a` and `d` without the rows. Which of the axes are
contracted, and in which order entries stand, does not matter to it as long as it is the same for
all uses of a leaf.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.text import aligned
from fisher8_jax.curvature._trace import TracedNetwork
from fisher8_jax.curvature._walk import Alias, Use

# Uses whose derivative costs no more than reading it, unless the rows are so few numbers that one
# operation counts more than what it computes.
_LIGHT = {"add", "sub", "mul", "div", "output"}
_SMALL_ROWS = 2**16


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


class LeafPlan(NamedTuple):
    """The way of one leaf.

    Attributes:
        name: its path in the parameters.
        shape: its shape.
        form: `pairs` multiplies Gram matrices of activations and deltas; `outer` sums outer
            products to rows of the Jacobian; `rows` differentiates each use on its own; `unused`
            and `frozen` (not a floating-point leaf) contribute nothing.
        uses: the names of the equations in which it meets data.
        positions: outer products an example and output.
        floats: the largest intermediate result, in numbers.
        operations: multiplications and additions.
        rows_pull_back: whether multiplied-out rows give the gradient at less cost than the uses.
        products_pull_back: whether it is a sum of matrix products of activations and deltas.
    """

    name: str
    shape: tuple[int, ...]
    form: str
    uses: tuple[str, ...]
    positions: int
    floats: int
    operations: int
    rows_pull_back: bool = False
    products_pull_back: bool = False


class GramPlan(NamedTuple):
    """The plan of all leaves; `outers` has the outer products of every use that has some."""

    leaves: tuple[LeafPlan, ...]
    outers: dict[int, Outer]

    def of_form(self, *forms: str) -> list[int]:
        return [index for index, leaf in enumerate(self.leaves) if leaf.form in forms]

    def axes_of_entries(self, leaf: int) -> tuple[int, ...]:
        """The axes of a leaf in the order in which its multiplied-out rows run over them."""
        if self.leaves[leaf].form == "rows":
            return tuple(range(len(self.leaves[leaf].shape)))
        outer = next(outer for outer in self.outers.values() if outer.leaf == leaf)
        assert outer.inner_axes is not None
        return (*outer.inner_axes, *outer.outer_axes)


def make_plan(network: TracedNetwork, rows: int, outputs: int) -> GramPlan:
    """Chooses the cheapest exact form of every leaf for `rows` examples of `outputs` numbers."""
    outers = {
        index: outer
        for index, use in enumerate(network.uses)
        if (outer := _as_outer(use)) is not None
    }
    users: list[list[int]] = [[] for _ in network.names]
    for index, use in enumerate(network.uses):
        for leaf in use.leaves:
            users[leaf].append(index)
    leaves = tuple(
        _plan_leaf(network, outers, leaf, used, rows, outputs) for leaf, used in enumerate(users)
    )
    return GramPlan(leaves, outers)


def _plan_leaf(
    network: TracedNetwork,
    outers: dict[int, Outer],
    leaf: int,
    used: list[int],
    rows: int,
    outputs: int,
) -> LeafPlan:
    shape = network.shapes[leaf].shape
    names = tuple(network.uses[index].name for index in used)

    def plan(
        form: str, positions: int = 0, floats: int = 0, operations: int = 0, **pull_back: bool
    ) -> LeafPlan:
        numbers = positions, floats, operations
        return LeafPlan(network.names[leaf], shape, form, names, *numbers, **pull_back)

    size, n = math.prod(shape), rows * outputs
    if not used or size == 0:
        return plan("unused" if network.is_trainable(leaf) else "frozen")
    parts = [outers[index] for index in used if index in outers]
    if len(parts) < len(used) or len({part.layout for part in parts}) > 1:
        results = [math.prod(out.shape) for index in used for out in network.uses[index].outputs]
        is_light = all(name in _LIGHT for name in names) and max(results) <= size
        is_cheaper = not is_light or n * size <= _SMALL_ROWS
        return plan("rows", 0, n * size, 2 * n * n * size, rows_pull_back=is_cheaper)
    positions = sum(part.positions for part in parts)
    form_rows = 2 * n * (positions + n) * size
    pairs = (n * positions) ** 2
    form_pairs = 2 * (rows * positions) ** 2 * parts[0].inner + pairs * (2 * parts[0].outer + 2)
    are_products = parts[0].inner_axes is not None and set(names) == {"dot_general"}
    if form_pairs <= form_rows:
        return plan("pairs", positions, pairs, form_pairs, products_pull_back=are_products)
    # A product with a vector takes about four times as long as its operations in a matrix product.
    is_cheaper = 4 * outputs <= positions and parts[0].inner_axes is not None
    ways = {"rows_pull_back": is_cheaper, "products_pull_back": are_products and not is_cheaper}
    return plan("outer", positions, n * size, form_rows, **ways)


def _as_outer(use: Use) -> Outer | None:
    """The outer products of a use, or None where it has another form."""
    parametric = [place for place, operand in enumerate(use.operands) if operand.is_parametric]
    if len(parametric) != 1 or use.equation is None:
        return None
    if any(jnp.issubdtype(x.aval.dtype, jnp.complexfloating) for x in use.operands):
        return None  # the parameter is real: its rows are real parts
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
    axes = _axes_of(alias, contracted[place], rest)
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
        return _image_patches(flat, params, window, space).reshape(rows, positions, inner)

    def delta(x: Array) -> Array:
        channels_last = (numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1])
        x = jnp.transpose(x, (0, *(axis + 1 for axis in channels_last)))
        return x.reshape(x.shape[0], positions, outer)

    layout = (*alias.path, "patches", numbers.rhs_spec)
    axes = _axes_of(alias, (*numbers.rhs_spec[2:], numbers.rhs_spec[1]), numbers.rhs_spec[:1])
    return Outer(alias.leaf, layout, positions, inner, outer, patches, delta, 0, *axes)


def _axes_of(
    alias: Alias, inner: Sequence[int], outer: Sequence[int]
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The axes of the leaf that stand in these places of its alias."""
    axes = alias.axes
    if axes is None:
        return None, ()
    return tuple(axes[axis] for axis in inner), tuple(axes[axis] for axis in outer)


def _image_patches(
    images: Array, params: dict[str, Any], window: Sequence[int], space: Sequence[int]
) -> Array:
    """The patches of `images`, shape `(n, *space, entries of the window, channels)`.

    Args:
        images: batch and channels first.
        params: those of the equation `conv_general_dilated`.
        window: the spatial shape of the kernel.
        space: the spatial shape of the result.
    """
    padding = [
        (low, high, dilation - 1)
        for (low, high), dilation in zip(params["padding"], params["lhs_dilation"], strict=True)
    ]
    padded = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), (0, 0, 0), *padding])
    strides = params["window_strides"]
    offsets = itertools.product(
        *(range(0, n * d, d) for n, d in zip(window, params["rhs_dilation"], strict=True))
    )

    def shifted(offset: tuple[int, ...]) -> Array:
        stop = [o + s * (n - 1) + 1 for o, s, n in zip(offset, strides, space, strict=True)]
        return lax.slice(padded, (0, 0, *offset), (*padded.shape[:2], *stop), (1, 1, *strides))

    patches = jnp.stack([shifted(offset) for offset in offsets], axis=-1)
    return jnp.moveaxis(patches, 1, -1).reshape(images.shape[0], *space, -1, images.shape[1])


def describe(solver: str, unknowns: int, leaves: Sequence[LeafPlan]) -> str:
    """One line about the solver, one for each leaf.

    Args:
        solver: how the system is solved.
        unknowns: whitened outputs of the local batch.
        leaves: how each leaf enters.
    """
    header = ("leaf", "shape", "form", "uses", "numbers", "operations")
    rows = [header, *(_row(leaf) for leaf in leaves)]
    total = sum(leaf.operations for leaf in leaves)
    first = f"{solver}; {unknowns:,} unknowns, {total:,} operations for their Gram matrix"
    return "\n".join([first, *aligned(rows, left=4)])


def _row(leaf: LeafPlan) -> tuple[str, ...]:
    counted = [
        name if leaf.uses.count(name) == 1 else f"{leaf.uses.count(name)} {name}"
        for name in dict.fromkeys(leaf.uses)
    ]
    uses = ", ".join(counted)
    if leaf.positions > 1:
        uses += f", {leaf.positions} positions"
    numbers = f"{leaf.floats:,}", f"{leaf.operations:,}"
    return leaf.name, str(leaf.shape), leaf.form, uses, *numbers
