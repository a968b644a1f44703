"""From the deltas of a batch to gradients of the parameters, without another backward pass.

The deltas are the derivatives of all whitened outputs with respect to the results of all uses. A
backward pass from any combination of outputs would compute the same combination of deltas, so a sum
replaces it; what remains is the derivative of every single use.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.curvature._problem import Problem
from fisher8_jax.curvature._trace import Network, parametric_operands
from fisher8_jax.curvature._walk import evaluate


def pull_back(problem: Problem, deltas: Any, outputs: Array) -> list[Array]:
    """`J'` times whitened outputs.

    Args:
        problem: the network and its parameters.
        deltas: those of `Problem.deltas`.
        outputs: what to multiply by, of shape `(outputs, rows)`.

    Returns:
        One array for each leaf of the parameters, in order.
    """
    network, every = problem.network, list(range(len(problem.network.uses)))
    combined = jax.tree.map(lambda delta: _combine(outputs, delta), deltas)
    values, to_leaves = jax.vjp(
        lambda leaves: parametric_operands(network, every, leaves), problem.leaves
    )
    cotangents = [
        _sum_over_examples(network, use, values[use], problem.forward.operands[use], combined[use])
        for use in every
    ]
    return to_leaves(cotangents)[0]


def apply_use(
    network: Network, index: int, values: Sequence[Array], others: Sequence[Any]
) -> list[Array]:
    """The floating-point results of one use for one example.

    Args:
        network: the traced network.
        index: which use.
        values: its parametric operands.
        others: all its operands, None at the places of the parametric ones.
    """
    equation = network.uses[index].equation
    assert equation is not None
    given = iter(values)
    arrays = [next(given) if other is None else other for other in others]
    results = evaluate(network.program.jaxpr, equation, arrays)
    return [result for result in results if jnp.issubdtype(result.dtype, jnp.inexact)]


def _combine(outputs: Array, delta: Array) -> Array:
    weights = outputs.reshape(*outputs.shape, *(1,) * (delta.ndim - 2))
    return jnp.sum(at_least_float32(delta) * weights, 0).astype(delta.dtype)


def _sum_over_examples(
    network: Network, index: int, values: list[Array], others: Sequence[Any], deltas: Sequence[Any]
) -> list[Array]:
    """The cotangents of the parametric operands of one use."""
    given = [delta for delta in deltas if delta is not None]
    if network.uses[index].equation is None:
        return [jnp.sum(delta, 0) for delta in given]

    def results(values: list[Array]) -> list[Array]:
        return jax.vmap(lambda others: apply_use(network, index, values, others))(others)

    return jax.vjp(results, values)[1](given)[0]
