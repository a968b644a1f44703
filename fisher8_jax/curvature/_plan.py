"""How each parameter leaf enters the Gram matrix, decided by shapes alone."""

import math
from typing import NamedTuple

from fisher8_jax.curvature._outer import Outer, as_outer
from fisher8_jax.curvature._scale import FactoredScale, Scale
from fisher8_jax.curvature._trace import Network


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
    """

    name: str
    shape: tuple[int, ...]
    form: str
    uses: tuple[str, ...]
    positions: int
    floats: int
    operations: int


class Plan(NamedTuple):
    """The plan of all leaves; `outers` has the outer products of every use that has some."""

    leaves: tuple[LeafPlan, ...]
    outers: dict[int, Outer]

    def of_form(self, *forms: str) -> list[int]:
        return [index for index, leaf in enumerate(self.leaves) if leaf.form in forms]


def make_plan(network: Network, rows: int, outputs: int, scale: list[Scale] | None = None) -> Plan:
    """Chooses the cheapest exact form of every leaf for `rows` examples of `outputs` numbers."""
    outers = {
        index: outer
        for index, use in enumerate(network.uses)
        if (outer := as_outer(use)) is not None
    }
    users: list[list[int]] = [[] for _ in network.names]
    for index, use in enumerate(network.uses):
        for leaf in use.leaves:
            users[leaf].append(index)
    if scale is not None:
        outers = {index: outer for index, outer in outers.items() if fits(outer, scale)}
    leaves = tuple(
        _plan_leaf(network, outers, leaf, used, rows, outputs) for leaf, used in enumerate(users)
    )
    return Plan(leaves, outers)


def fits(outer: Outer, scale: list[Scale]) -> bool:
    """Whether activations and deltas can be divided by the two factors of the scale."""
    factored = scale[outer.leaf]
    if not isinstance(factored, FactoredScale) or outer.inner_axes is None:
        return False
    last = (factored.row.ndim,)
    return last in (outer.inner_axes, outer.outer_axes)


def _plan_leaf(
    network: Network, outers: dict[int, Outer], leaf: int, used: list[int], rows: int, outputs: int
) -> LeafPlan:
    shape = network.shapes[leaf].shape
    names = tuple(network.uses[index].name for index in used)

    def plan(form: str, positions: int = 0, floats: int = 0, operations: int = 0) -> LeafPlan:
        return LeafPlan(network.names[leaf], shape, form, names, positions, floats, operations)

    if not used:
        return plan("unused" if network.is_trainable(leaf) else "frozen")
    size, n = math.prod(shape), rows * outputs
    parts = [outers[index] for index in used if index in outers]
    if len(parts) < len(used) or len({part.layout for part in parts}) > 1:
        return plan("rows", 0, n * size, 2 * n * n * size)
    positions = sum(part.positions for part in parts)
    form_rows = 2 * n * (positions + n) * size
    pairs = (n * positions) ** 2
    form_pairs = 2 * (rows * positions) ** 2 * parts[0].inner + pairs * (2 * parts[0].outer + 2)
    if form_pairs <= form_rows:
        return plan("pairs", positions, pairs, form_pairs)
    return plan("outer", positions, n * size, form_rows)
