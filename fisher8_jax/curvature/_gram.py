"""From the deltas of a batch to the Gram matrix of its outputs, and to the parameters' gradient.

The deltas are the derivatives of all whitened outputs with respect to the results of all uses. The
Gram matrix `K = J J'` is a sum over leaves, each in the cheapest form. Blocks are indexed
`K[c, i, e, j]`: outputs `c` of the examples `i` at hand against outputs `e` of all examples `j`,
which are more if the batch is split over a mapped axis.

A backward pass from any combination of outputs would compute the same combination of deltas, so a
sum replaces it; what remains is the derivative of every single use. Where the rows of a leaf are
multiplied out, the same combination of them is its gradient, and often cheaper.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import append_axes
from fisher8_jax.curvature._problem import Problem
from fisher8_jax.curvature._trace import TracedNetwork, parametric_operands
from fisher8_jax.curvature._walk import evaluate

Gather = Callable[[Array, int], Array]
Rows = dict[int, "LeafRows"]

_EXACT = lax.Precision.HIGHEST
_UNROLLED = 2  # 3 and 4 were no better
_FEW_OUTPUTS, _MANY_NUMBERS = 32, 2**13


class LeafRows(NamedTuple):
    """The rows of the Jacobian that belong to one parameter leaf, in the cheapest exact form.

    A pytree. `gram` multiplies two of them without forming the rows where they are sums of outer
    products.

    Attributes:
        activation: `(rows, positions, inner)`, or None where the rows are multiplied out.
        delta: `(outputs, rows, positions, outer)`; multiplied out `(outputs, rows, entries)`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.curvature import LeafRows
        >>> rows = LeafRows(jnp.ones((3, 1, 5)), jnp.ones((2, 3, 1, 4)))
        >>> rows.gram(rows).shape, float(rows.gram(rows)[0, 0, 0, 0])
        ((2, 3, 2, 3), 20.0)
    """

    activation: Array | None
    delta: Array

    def gram(self, other: "LeafRows") -> Array:
        """`K[c, i, e, j]`: output `c` of row `i` here against output `e` of row `j` of `other`."""
        if self.activation is None:
            return _product(self.delta, other.delta)
        assert other.activation is not None
        return _pairs((self.activation, self.delta), (other.activation, other.delta))

    def own_gram(self) -> Array:
        """`K[i, c, e]`: the outputs of every row against each other."""
        delta = self.delta
        if self.activation is None:
            return jnp.einsum("cip,eip->ice", delta, delta, precision=_EXACT)
        a = self.activation
        alike = jnp.einsum("itp,isp->its", a, a, precision=_EXACT)
        moved = jnp.einsum("cito,eiso->icets", delta, delta, precision=_EXACT)
        return jnp.einsum("its,icets->ice", alike, moved, precision=_EXACT)

    def map(self, change: Gather) -> "LeafRows":
        """With `change(array, axis)` for both arrays, where `axis` is that of the rows."""
        activation = None if self.activation is None else change(self.activation, 0)
        return LeafRows(activation, change(self.delta, 1))


def gram_matrix(rows: Rows, gather: Gather = lambda x, axis: x) -> Array:
    """The Gram matrix of all leaves.

    Args:
        rows: from `leaf_rows`.
        gather: collects an array of local examples along an axis from all parts of the batch.
    """
    grams = [own.gram(own.map(gather)) for own in rows.values()]
    if not grams:
        raise ValueError(
            "No parameter reaches the predictions: `predict_one(params, example)` must compute "
            "them from `params`."
        )
    return sum(grams[1:], grams[0])


def leaf_rows(problem: Problem) -> Rows:
    """The rows of every leaf that reaches the predictions, by its index."""
    plan = problem.plan
    found = {leaf: _outer_rows(problem, leaf) for leaf in plan.of_form("pairs", "outer")}
    chosen = plan.of_form("rows")
    for leaf, row in zip(chosen, _jacobian_rows(problem, chosen), strict=True):
        found[leaf] = _multiplied_out(row)
    return found


def _outer_rows(problem: Problem, leaf: int) -> LeafRows:
    plan, operands, deltas = problem.plan, problem.forward.operands, problem.deltas
    activations, cotangents = [], []
    for index, use in enumerate(problem.network.uses):
        if leaf in use.leaves:
            outer = plan.outers[index]
            data = operands[index][outer.data]
            assert data is not None
            activations.append(at_least_float32(outer.activation(data)))
            cotangents.append(at_least_float32(jax.vmap(outer.delta)(deltas[index][0])))
    activation, delta = _join(activations, 1), _join(cotangents, 2)
    if plan.leaves[leaf].form == "outer":
        return _multiplied_out(jnp.einsum("itp,cito->cipo", activation, delta, precision=_EXACT))
    return LeafRows(activation, delta)


def _multiplied_out(rows: Array) -> LeafRows:
    return LeafRows(None, rows.reshape(*rows.shape[:2], -1))


def _pairs(left: tuple[Array, Array], right: tuple[Array, Array]) -> Array:
    """`sum over t, s of (a_it . a_js) (d_cit . d_ejs)`."""
    (a, delta), (b, other) = left, right
    if a.shape[1] == 1:  # no positions to add up
        alike = jnp.einsum("ip,jp->ij", a[:, 0], b[:, 0], precision=_EXACT)
        return _product(delta[:, :, 0], other[:, :, 0]) * alike[None, :, None]
    alike = jnp.einsum("itp,jsp->itjs", a, b, precision=_EXACT)
    moved = jnp.einsum("cito,ejso->citejs", delta, other, precision=_EXACT)
    return jnp.einsum("itjs,citejs->ciej", alike, moved, precision=_EXACT)


def _product(left: Array, right: Array) -> Array:
    """`left right'`, where the axis after the first two is of entries."""
    # On the left, rows keep an axis of their own, by which devices can split the product.
    flat = right.reshape(-1, right.shape[-1])
    product = jnp.matmul(left, flat.T, precision=_EXACT)
    return product.reshape(*left.shape[:2], *right.shape[:2])


def _jacobian_rows(problem: Problem, chosen: list[int]) -> list[Array]:
    """The rows of the Jacobian for the leaves without a cheaper form."""

    def cotangents(use: int, values: list[Array]) -> Any:
        others = problem.forward.operands[use]
        return _operand_cotangents(problem.network, use, values, others, problem.deltas[use])

    rows = _through_uses(problem, chosen, cotangents, lambda pull: jax.vmap(jax.vmap(pull)))
    return [at_least_float32(row) for row in rows]


def _through_uses(
    problem: Problem,
    chosen: list[int],
    cotangents: Callable[[int, list[Array]], Any],
    batched: Callable[[Any], Any] = lambda pull: pull,
) -> list[Array]:
    """The cotangents of some leaves from those of the parametric operands of their uses."""
    network, leaves = problem.network, problem.leaves
    uses = [i for i, use in enumerate(network.uses) if use.leaves & set(chosen)]
    if not uses:
        return [jnp.zeros_like(leaves[leaf]) for leaf in chosen]

    def parametric(some: list[Array]) -> list[list[Array]]:
        every = list(leaves)
        for leaf, array in zip(chosen, some, strict=True):
            every[leaf] = array
        return parametric_operands(network, uses, every)

    values, pull = jax.vjp(parametric, [leaves[leaf] for leaf in chosen])
    given = [cotangents(use, at) for use, at in zip(uses, values, strict=True)]
    return batched(pull)(given)[0]


def _operand_cotangents(
    network: TracedNetwork,
    index: int,
    values: list[Array],
    others: Sequence[Any],
    deltas: Sequence[Any],
) -> Any:
    """The cotangents of the parametric operands of one use, for each output and example."""
    use = network.uses[index]
    if use.equation is None:
        return deltas

    def of_example(others: Sequence[Any], deltas: Sequence[Any]) -> Any:
        _, pull_back = jax.vjp(lambda values: _apply_use(network, index, values, others), values)
        return pull_back([d for d in deltas if d is not None])[0]

    one_output = jax.vmap(of_example)
    try:
        try:
            return jax.vmap(one_output, in_axes=(None, 0))(others, deltas)
        except NotImplementedError:  # JAX's rule for grouped convolutions under `shard_map`
            return lax.map(lambda output: one_output(others, output), deltas)
    except Exception as error:
        names = ", ".join(f"`{network.names[leaf]}`" for leaf in sorted(use.leaves))
        raise ValueError(
            f"The parameters {names} of `predict_one` cannot be followed through the operation "
            f"`{use.name}`, which has no reverse-mode derivative of its own."
        ) from error


def _join(parts: list[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)


def pull_back(problem: Problem, outputs: Array, rows: Rows) -> list[Array]:
    """`J'` times whitened outputs of shape `(outputs, rows)`, from the deltas of the batch.

    Args:
        problem: the network and its parameters.
        outputs: what to pull back.
        rows: those of `leaf_rows`, which serve where they are cheaper; may be empty.

    Returns:
        One array for each leaf of the parameters, in order; zeros for leaves of integers.
    """
    gradients = [jnp.zeros_like(leaf) for leaf in problem.leaves]
    by_rows = [leaf for leaf in rows if problem.plan.leaves[leaf].rows_pull_back]
    for leaf in by_rows:
        entries = rows[leaf].delta.reshape(outputs.size, -1)
        product = jnp.matmul(outputs.reshape(-1), entries, precision=_EXACT)
        gradients[leaf] = _like_leaf(problem, leaf, product)

    def cotangents(use: int, values: list[Array]) -> Any:
        combined = jax.tree.map(lambda delta: _combine(outputs, delta), problem.deltas[use])
        others = problem.forward.operands[use]
        return _sum_over_examples(problem.network, use, values, others, combined)

    by_products = [leaf for leaf in rows if problem.plan.leaves[leaf].products_pull_back]
    for leaf in by_products:
        gradients[leaf] = _like_leaf(problem, leaf, _sum_of_products(problem, leaf, outputs))
    trainable = (leaf for leaf in range(len(gradients)) if problem.network.is_trainable(leaf))
    rest = [leaf for leaf in trainable if leaf not in by_rows and leaf not in by_products]
    for leaf, gradient in zip(rest, _through_uses(problem, rest, cotangents), strict=True):
        gradients[leaf] = gradient
    return gradients


def _sum_of_products(problem: Problem, leaf: int, outputs: Array) -> Array:
    """The gradient of a kernel of matrix products: activations times combined deltas.

    Written out, because the derivative of a mapped product with a vector has the operands in an
    order that makes XLA transpose them.
    """
    parts = []
    for index, use in enumerate(problem.network.uses):
        if leaf in use.leaves and use.equation is not None:
            outer, operands = problem.plan.outers[index], problem.forward.operands[index]
            activation = operands[outer.data]
            assert activation is not None
            delta = outer.delta(_combine(outputs, problem.deltas[index][0]))
            arrays = outer.activation(activation), delta
            flat = [x.reshape(-1, x.shape[-1]) for x in arrays]
            parts.append(jnp.einsum("np,no->po", *flat, precision=use.equation.params["precision"]))
    return sum(parts[1:], parts[0])


def _like_leaf(problem: Problem, leaf: int, entries: Array) -> Array:
    """A combination of rows in the shape of their leaf."""
    like, axes = problem.leaves[leaf], problem.plan.axes_of_entries(leaf)
    array = entries.reshape([like.shape[axis] for axis in axes])
    return jnp.transpose(array, [axes.index(axis) for axis in range(like.ndim)]).astype(like.dtype)


def _apply_use(
    network: TracedNetwork, index: int, values: Sequence[Array], others: Sequence[Any]
) -> list[Array]:
    """The floating-point results of one use for one example.

    Args:
        network: the traced network.
        index: which use.
        values: its parametric operands.
        others: all its operands, None in the positions of the parametric ones.
    """
    equation = network.uses[index].equation
    assert equation is not None
    if equation.primitive.name == "scan":  # two steps at a time: rows are added up half as often
        unroll = max(equation.params["unroll"], _UNROLLED)
        equation = equation.replace(params=equation.params | {"unroll": unroll})
    given = iter(values)
    arrays = [next(given) if other is None else other for other in others]
    results = evaluate(network.program.jaxpr, equation, arrays)
    return [result for result in results if jnp.issubdtype(result.dtype, jnp.inexact)]


def _combine(outputs: Array, delta: Array) -> Array:
    weighted = at_least_float32(delta) * append_axes(outputs, delta.ndim)
    if len(weighted) <= _FEW_OUTPUTS and weighted.size > _MANY_NUMBERS:
        # Written out: on CPUs, XLA's sum over a short first axis takes longer than the solve.
        return functools.reduce(jnp.add, list(weighted)).astype(delta.dtype)
    return jnp.sum(weighted, 0).astype(delta.dtype)


def _sum_over_examples(
    network: TracedNetwork,
    index: int,
    values: list[Array],
    others: Sequence[Any],
    deltas: Sequence[Any],
) -> list[Array]:
    """The cotangents of the parametric operands of one use."""
    given = [delta for delta in deltas if delta is not None]
    if network.uses[index].equation is None:
        return [jnp.sum(delta, 0) for delta in given]

    def results(values: list[Array]) -> list[Array]:
        return jax.vmap(lambda others: _apply_use(network, index, values, others))(others)

    return jax.vjp(results, values)[1](given)[0]
