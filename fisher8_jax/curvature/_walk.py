"""Where parameters meet data: a walk through the program of one example.

The network is traced to a jaxpr, the list of equations that JAX itself differentiates. Every value
in it is one of three kinds:

* *constant*: depends on neither the parameters nor the example;
* *parametric*: computed from parameters alone, such as a transposed kernel or `exp(log_scale)`;
* *data*: depends on the example.

An equation with a parametric and a data operand is a *use*, and so is an output that is parametric.
All derivatives with respect to parameters pass through uses, hence the Jacobian follows from the
operands of the uses and from the derivatives of the network's outputs with respect to the outputs
of the uses. For those a zero perturbation is added to the output of every use.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

# Calls whose derivative is that of their body. Custom rules are none: they are kept whole.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_CALLS |= {"checkpoint": "jaxpr", "remat": "jaxpr", "remat2": "jaxpr"}

# Only the order or the dtype of a parameter's entries changes: its Gram matrix stays.
_ISOMETRIES = {"reshape", "transpose", "squeeze", "expand_dims", "convert_element_type", "copy"}
_ISOMETRIES |= {"rev", "sharding_constraint"}

_COLLECTIVES = {"psum", "psum2", "psum_invariant", "pmax", "pmin", "ppermute", "all_gather"}
_COLLECTIVES |= {"all_gather_invariant", "all_to_all", "reduce_scatter", "pgather"}


class Alias(NamedTuple):
    """A single parameter leaf, its entries reordered.

    Attributes:
        leaf: which one.
        path: the equations that reordered it.
        axes: the axes of the leaf that became the axes of the alias; None if these mix.
    """

    leaf: int
    path: tuple[str, ...]
    axes: tuple[int, ...] | None


class Value(NamedTuple):
    """What is known about a variable of the program.

    Attributes:
        aval: its shape and dtype.
        array: its value, or None in walks that compute nothing of this kind.
        is_data: whether it depends on the example.
        leaves: the parameter leaves that a parametric value is computed from.
        alias: set if a parametric value is one leaf, reordered.
    """

    aval: Any
    array: Array | None = None
    is_data: bool = False
    leaves: frozenset[int] = frozenset()
    alias: Alias | None = None

    @property
    def is_parametric(self) -> bool:
        return bool(self.leaves)


class Use(NamedTuple):
    """An equation at which parameters meet data; the equation is None at a parametric output."""

    equation: JaxprEqn | None
    operands: tuple[Value, ...]
    outputs: tuple[Any, ...]

    @property
    def name(self) -> str:
        return "output" if self.equation is None else self.equation.primitive.name

    @property
    def leaves(self) -> frozenset[int]:
        return frozenset().union(*(operand.leaves for operand in self.operands))


AtUse = Callable[[JaxprEqn | None, list[Value], list[Array] | None], list[Array] | None]


def walk(program: ClosedJaxpr, arguments: Sequence[Value], at_use: AtUse) -> list[Value]:
    """Evaluates `program`, and calls `at_use` at every use, in an order that never changes.

    Equations with an operand of unknown value are not computed. `at_use` gets the equation, its
    operands and its results if these are known, and returns the results to continue with.
    """
    results = _walk(program.jaxpr, program.consts, arguments, at_use)
    return [_leave(result, at_use) for result in results]


def _leave(result: Value, at_use: AtUse) -> Value:
    if not result.is_parametric:
        return result
    known = None if result.array is None else [result.array]
    arrays = at_use(None, [result], known)
    return Value(result.aval, None if arrays is None else arrays[0], is_data=True)


def _walk(
    jaxpr: Jaxpr, constants: Sequence[Array], arguments: Sequence[Value], at_use: AtUse
) -> list[Value]:
    known: dict[Var, Value] = {}

    def read(atom: Var | Literal) -> Value:
        if isinstance(atom, Literal):
            return Value(atom.aval, jnp.asarray(atom.val))
        return known[atom]

    for variable, constant in zip(jaxpr.constvars, constants, strict=True):
        known[variable] = Value(variable.aval, constant)
    known.update(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        results = _step(jaxpr, equation, operands, at_use)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(jaxpr: Jaxpr, equation: JaxprEqn, operands: list[Value], at_use: AtUse) -> list[Value]:
    """The results of one equation."""
    name = equation.primitive.name
    parametric = any(operand.is_parametric for operand in operands)
    if name in _CALLS and parametric:
        body = equation.params[_CALLS[name]]
        if isinstance(body, ClosedJaxpr):
            return _walk(body.jaxpr, body.consts, operands, at_use)
        return _walk(body, (), operands, at_use)
    refuse_collectives(equation)
    known = [operand.array for operand in operands if operand.array is not None]
    arrays = evaluate(jaxpr, equation, known) if len(known) == len(operands) else None
    is_data = any(operand.is_data for operand in operands)
    if parametric and is_data:
        arrays = at_use(equation, operands, arrays)
    results = arrays if arrays is not None else [None] * len(equation.outvars)
    return [
        _describe(equation, operands, array, variable, is_data)
        for array, variable in zip(results, equation.outvars, strict=True)
    ]


def _describe(
    equation: JaxprEqn, operands: list[Value], array: Array | None, variable: Var, is_data: bool
) -> Value:
    name, aval = equation.primitive.name, cast(ShapedArray, variable.aval)
    if is_data:
        return Value(aval, array, is_data=True)
    if name == "stop_gradient" or not jnp.issubdtype(aval.dtype, jnp.inexact):
        return Value(aval, array)
    leaves = frozenset().union(*(operand.leaves for operand in operands))
    alias = operands[0].alias if name in _ISOMETRIES and len(operands) == 1 else None
    if alias is not None:
        step = f"{name}{sorted((k, str(v)) for k, v in equation.params.items())}"
        alias = Alias(alias.leaf, (*alias.path, step), _reorder(equation, alias.axes))
    return Value(aval, array, leaves=leaves, alias=alias)


def _reorder(equation: JaxprEqn, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    name = equation.primitive.name
    if axes is not None and name == "transpose":
        return tuple(axes[axis] for axis in equation.params["permutation"])
    return axes if name in ("convert_element_type", "copy", "sharding_constraint") else None


def evaluate(jaxpr: Jaxpr, equation: JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
    """The results of one equation, with its own derivative rule and its own context."""
    given = {
        atom: array
        for atom, array in zip(equation.invars, arrays, strict=True)
        if not isinstance(atom, Literal)
    }
    alone = jaxpr.replace(
        constvars=[],
        invars=list(given),
        outvars=list(equation.outvars),
        eqns=[equation],
        effects=equation.effects,
    )
    return jaxpr_as_fun(ClosedJaxpr(alone, []))(*given.values())


def refuse_collectives(equation: JaxprEqn) -> None:
    """Raises where examples would influence each other."""
    if equation.primitive.name in _COLLECTIVES:
        raise ValueError(
            f"`predict_one` must map one example on its own, but it contains the collective "
            f"`{equation.primitive.name}`, by which examples influence each other (batch "
            "statistics, for instance). Use running averages: in Flax, `use_running_average=True`."
        )
