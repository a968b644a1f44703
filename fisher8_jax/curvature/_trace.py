"""The program of one example, its uses, and what a batch of examples makes of them."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from chex import ArrayTree
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_parameters, check_pure_function
from fisher8_jax.curvature._walk import Alias, Use, Value, walk
from fisher8_jax.families import Family

PredictOne = Callable[[Any, Any], Family]
PullBack = Callable[[Any], tuple[Any, ...]]


class TracedNetwork(NamedTuple):
    """A traced network: everything about it that is known before any number is."""

    program: ClosedJaxpr
    uses: tuple[Use, ...]
    names: tuple[str, ...]
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    prediction: Any  # the distribution of one example, with shapes for arrays

    def is_trainable(self, leaf: int) -> bool:
        return bool(jnp.issubdtype(self.shapes[leaf].dtype, jnp.inexact))


class ForwardPass(NamedTuple):
    """A forward pass of the batch, ready for backward passes to the uses.

    Attributes:
        outputs: the arrays of the predicted distribution.
        operands: for every use the data and constants that meet the parameters, stacked over the
            examples; None at the places of parametric operands.
        pull_back: from cotangents of `outputs` to those of the results of every use.
    """

    outputs: list[Array]
    operands: list[list[Array | None]]
    pull_back: PullBack


def check_function_of_one_example(predict_one: object, params: object) -> None:
    """Raises if `predict_one` is a module, or `params` holds what is no array."""
    check_pure_function(
        "predict_one",
        predict_one,
        for_nnx="Pass `heads.nnx.predict_one_fn(model)` and `nnx.state(model, nnx.Param)`.",
        for_linen="Pass `lambda params, x: module.apply(params, x)` and the variables as `params`.",
    )
    check_parameters("params", params)


def trace(
    predict_one: PredictOne,
    params: ArrayTree,
    leaves: Sequence[Array],
    data: Sequence[Array],
    inputs: ArrayTree,
) -> TracedNetwork:
    """Traces `predict_one` on one example and finds its uses; computes nothing.

    The arrays themselves are traced, not their shapes, so that the program knows over which axes of
    an enclosing `shard_map` they vary.

    Args:
        predict_one: see `network_curvature`.
        params: the parameters, for their structure.
        leaves: their leaves.
        data: the leaves of the inputs.
        inputs: the inputs, for their structure.
    """
    paths, structure = jax.tree.flatten_with_path(params)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]

    def predict(leaves: list[Array], example: list[Array]) -> Family:
        given = jax.tree.unflatten(jax.tree.structure(inputs), example)
        dist = predict_one(jax.tree.unflatten(structure, leaves), given)
        return check_family("the result of `predict_one`", dist)

    example = [lax.index_in_dim(x, 0, keepdims=False) for x in data]
    program, prediction = jax.make_jaxpr(predict, return_shape=True)(list(leaves), example)
    refuse_batch_statistics(program, len(shapes))
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
    network = TracedNetwork(program, (), tuple(names), tuple(shapes), prediction)
    uses: list[Use] = []

    def record(equation: JaxprEqn | None, operands: list[Value], arrays: Any) -> None:
        variables = operands if equation is None else equation.outvars
        uses.append(Use(equation, tuple(operands), tuple(v.aval for v in variables)))

    walk(program, _arguments(network, [None] * len(shapes), example), record)
    return network._replace(uses=tuple(uses))


def run(network: TracedNetwork, leaves: Sequence[Array], data: list[Array]) -> ForwardPass:
    """One forward pass of the batch, differentiated with respect to the results of all uses."""
    rows = data[0].shape[0]

    def perturbed(example: list[Array], perturbations: list[list[Array]]) -> Any:
        kept: list[list[Array | None]] = []

        def perturb(equation: Any, operands: list[Value], arrays: list[Array] | None) -> Any:
            assert arrays is not None
            zeros = perturbations[len(kept)]
            kept.append([None if o.is_parametric else o.array for o in operands])
            return [x if z is None else x + z for x, z in zip(arrays, zeros, strict=True)]

        results = walk(network.program, _arguments(network, leaves, example, example), perturb)
        return [result.array for result in results], kept

    # By integers, whose product with 0 XLA removes early enough to share this pass with the loss's.
    zero = 0 * _formally_depends_on([*leaves, *data]).astype(jnp.int32)
    zeros = [[_zeros(rows, aval, zero) for aval in use.outputs] for use in network.uses]
    forward = jax.vmap(perturbed)
    outputs, pull_back, operands = jax.vjp(lambda z: forward(data, z), zeros, has_aux=True)
    return ForwardPass(outputs, operands, lambda cotangent: pull_back(cotangent)[0])


def parametric_operands(
    network: TracedNetwork, uses: Sequence[int], leaves: Sequence[Array]
) -> list[list[Array]]:
    """The values of the parametric operands of some uses, computed from the parameters alone."""
    found: list[list[Array]] = []

    def collect(equation: Any, operands: list[Value], arrays: Any) -> None:
        found.append([o.array for o in operands if o.is_parametric and o.array is not None])

    avals = network.program.in_avals[len(leaves) :]
    walk(network.program, _arguments(network, leaves, avals), collect)
    return [found[use] for use in uses]


def _arguments(
    network: TracedNetwork,
    leaves: Sequence[Array | None],
    avals: Sequence[Any],
    example: Sequence[Array] | None = None,
) -> list[Value]:
    """The arguments of the program, some of them of unknown value."""

    def parameter(index: int, array: Array | None) -> Value:
        if not network.is_trainable(index):
            return Value(network.shapes[index], array)
        axes = tuple(range(len(network.shapes[index].shape)))
        alias = Alias(index, (), axes)
        return Value(network.shapes[index], array, False, frozenset({index}), alias)

    arrays = example if example is not None else [None] * len(avals)
    data = [Value(aval, array, is_data=True) for aval, array in zip(avals, arrays, strict=True)]
    return [parameter(index, array) for index, array in enumerate(leaves)] + data


def _zeros(rows: int, aval: Any, zero: Array) -> Array | None:
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return None
    return jnp.broadcast_to(zero.astype(aval.dtype), (rows, *aval.shape))


def vary_with(leaves: Sequence[Array], data: Sequence[Array]) -> list[Array]:
    """`leaves`, each of which depends formally on the data.

    Inside `shard_map` a cotangent of what all devices share is added up over them. Jacobian rows
    must not be. XLA removes the selection.
    """
    depends = _formally_depends_on(data)
    return [jnp.where(depends, leaf, leaf) for leaf in leaves]


def _formally_depends_on(arrays: Sequence[Array]) -> Array:
    first = [x.reshape(-1)[0] for x in arrays if x.size]
    return functools.reduce(jnp.logical_and, [x == x for x in first])


# Networks that normalise by statistics of their batch. In a batch of one the mean is the value
# itself, so `value - mean` is 0 and everything behind it ignores the input: such a network would
# learn a constant without a word.

# The entries of the first operand stay, in order, if there are as many as before.
_SAME_ENTRIES = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type"}
_SAME_ENTRIES |= {"copy", "reduce_sum", "stop_gradient", "optimization_barrier"}
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def refuse_batch_statistics(program: ClosedJaxpr, first: int) -> None:
    """Raises where a value is centred by its own mean over axes of length 1.

    Args:
        program: the program of one example.
        first: the position of the first argument that is data.
    """
    origins = [object() if index >= first else None for index, _ in enumerate(program.jaxpr.invars)]
    _follow(program.jaxpr, origins)


def _follow(jaxpr: Jaxpr, arguments: Sequence[Any]) -> list[Any]:
    """The origin of every result: equal for equal entries, None for what is no data."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

    def origin(atom: Any) -> Any:
        return None if isinstance(atom, Literal) else known.get(atom)

    for equation in jaxpr.eqns:
        results = _results(equation, [origin(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [origin(atom) for atom in jaxpr.outvars]


def _results(equation: JaxprEqn, origins: list[Any]) -> list[Any]:
    name = equation.primitive.name
    if not any(origin is not None for origin in origins):
        return [None] * len(equation.outvars)
    body = next((equation.params[key] for key in _BODIES if key in equation.params), None)
    if body is not None and name not in ("scan", "while"):
        inner = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        if len(inner.invars) == len(origins):
            return _follow(inner, origins)
    if name == "sub" and origins[0] is not None and origins[0] is origins[1]:
        raise ValueError(
            "`predict_one` subtracts from a value its own mean over axes of length 1, which leaves "
            "0: its predictions would ignore the example. Batch statistics of a single example do "
            "this. Use running averages: `use_running_average=True` in Flax Linen, "
            "`fisher8_jax.heads.nnx.predict_one_fn(model)` for NNX, `inference` in Equinox."
        )
    atoms: list[Any] = [*equation.invars[:1], *equation.outvars]
    sizes = {math.prod(atom.aval.shape) for atom in atoms}
    divided = name in ("div", "mul") and _is_one(equation.invars[1])
    if (name in _SAME_ENTRIES or divided) and len(sizes) == 1:
        return [origins[0]] * len(equation.outvars)
    return [object() for _ in equation.outvars]


def _is_one(atom: Any) -> bool:
    return isinstance(atom, Literal) and bool(atom.val == 1)
