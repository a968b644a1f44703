"""The Gram matrix `K = J J'` of a network's whitened outputs, leaf by leaf.

Every function here returns blocks `K[c, i, e, j]`: outputs `c` of the examples `i` at hand against
outputs `e` of all examples `j`, which are more if the batch is split over a mapped axis.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._numerics import at_least_float32
from fisher8_jax.curvature._plan import Plan
from fisher8_jax.curvature._trace import Network, Pass, parametric_operands
from fisher8_jax.curvature._walk import evaluate

Gather = Callable[[Array, int], Array]

_EXACT = lax.Precision.HIGHEST


def gram_matrix(
    network: Network,
    plan: Plan,
    leaves: Sequence[Array],
    forward: Pass,
    deltas: list[list[Array]],
    gather: Gather,
) -> Array:
    """Adds up the Gram matrices of all leaves.

    Args:
        network: the traced network.
        plan: the form of every leaf.
        leaves: the parameters.
        forward: the forward pass of the batch.
        deltas: derivatives of the outputs with respect to the results of every use, first axis the
            output, second the example.
        gather: collects an array of local examples along an axis from all parts of the batch.
    """
    blocks = [
        _outer_block(network, plan, leaf, forward, deltas, gather)
        for leaf in plan.of_form("pairs", "outer")
    ]
    rows = _jacobian_rows(network, plan, leaves, forward, deltas)
    blocks += [_product(row, gather) for row in rows]
    return sum(blocks[1:], blocks[0])


def _outer_block(
    network: Network,
    plan: Plan,
    leaf: int,
    forward: Pass,
    deltas: list[list[Array]],
    gather: Gather,
) -> Array:
    uses = [index for index, use in enumerate(network.uses) if leaf in use.leaves]
    activations, cotangents = [], []
    for index in uses:
        outer = plan.outers[index]
        operand = forward.operands[index][outer.data]
        assert operand is not None
        activations.append(at_least_float32(outer.activation(operand)))
        cotangents.append(at_least_float32(jax.vmap(outer.delta)(deltas[index][0])))
    activation, delta = _join(activations, 1), _join(cotangents, 2)
    if plan.leaves[leaf].form == "outer":
        rows = jnp.einsum("itp,cito->cipo", activation, delta, precision=_EXACT)
        return _product(rows, gather)
    return _pairs(activation, delta, gather)


def _pairs(activation: Array, delta: Array, gather: Gather) -> Array:
    """`sum over t, s of (a_it . a_js) (d_cit . d_ejs)`."""
    everywhere = gather(activation, 0), gather(delta, 1)
    if activation.shape[1] == 1:  # no positions to add up
        a, b = activation[:, 0], everywhere[0][:, 0]
        alike = jnp.einsum("ip,jp->ij", a, b, precision=_EXACT)
        return (
            _product(delta[:, :, 0], lambda x, axis: everywhere[1][:, :, 0]) * alike[None, :, None]
        )
    alike = jnp.einsum("itp,jsp->itjs", activation, everywhere[0], precision=_EXACT)
    moved = jnp.einsum("cito,ejso->citejs", delta, everywhere[1], precision=_EXACT)
    return jnp.einsum("itjs,citejs->ciej", alike, moved, precision=_EXACT)


def _product(rows: Array, gather: Gather) -> Array:
    """`rows rows'`, where the axes after the first two are entries."""
    flat = rows.reshape(*rows.shape[:2], -1)
    everywhere = gather(flat, 1)
    left = flat.reshape(-1, flat.shape[-1])
    right = everywhere.reshape(-1, flat.shape[-1])
    product = jnp.matmul(left, right.T, precision=_EXACT)
    return product.reshape(*flat.shape[:2], *everywhere.shape[:2])


def _jacobian_rows(
    network: Network, plan: Plan, leaves: Sequence[Array], forward: Pass, deltas: list[list[Array]]
) -> list[Array]:
    """The rows of the Jacobian for the leaves without a cheaper form."""
    chosen = plan.of_form("rows")
    uses = [i for i, use in enumerate(network.uses) if use.leaves & set(chosen)]
    if not uses:
        return []

    def operands(some: list[Array]) -> list[list[Array]]:
        every = list(leaves)
        for leaf, array in zip(chosen, some, strict=True):
            every[leaf] = array
        return parametric_operands(network, uses, every)

    values, pull_back = jax.vjp(operands, [leaves[leaf] for leaf in chosen])
    cotangents = [
        _operand_cotangents(network, plan, use, at, forward.operands[use], deltas[use])
        for use, at in zip(uses, values, strict=True)
    ]
    (rows,) = jax.vmap(jax.vmap(pull_back))(cotangents)
    return [at_least_float32(row) for row in rows]


def _operand_cotangents(
    network: Network,
    plan: Plan,
    index: int,
    values: list[Array],
    others: list[Array | None],
    deltas: list[Array],
) -> list[Array]:
    """The cotangents of the parametric operands of one use, for each output and example."""
    use = network.uses[index]
    if use.equation is None:
        return deltas
    equation = use.equation

    def of_example(others: list[Array | None], deltas: list[Array]) -> list[Array]:
        def apply(values: list[Array]) -> list[Array]:
            given = iter(values)
            arrays = [next(given) if o is None else o for o in others]
            results = evaluate(network.program.jaxpr, equation, arrays)
            return [r for r in results if jnp.issubdtype(r.dtype, jnp.inexact)]

        _, pull_back = jax.vjp(apply, values)
        return pull_back([d for d in deltas if d is not None])[0]

    one_output = jax.vmap(of_example)
    try:
        return jax.vmap(one_output, in_axes=(None, 0))(others, deltas)
    except Exception as error:
        names = ", ".join(f"`{network.names[leaf]}`" for leaf in sorted(use.leaves))
        raise ValueError(
            f"The parameters {names} of `predict_one` cannot be followed through the operation "
            f"`{use.name}`, which has no reverse-mode derivative of its own."
        ) from error


def _join(parts: list[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)
