"""Networks that normalise by statistics of their batch, found in the program of one example.

In a batch of one the mean is the value itself, so `value - mean` is 0 and everything behind it
ignores the input. Such a network would learn a constant without a word.
"""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

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
    sizes = [_size(atom) for atom in (*equation.invars[:1], *equation.outvars)]
    divided = name in ("div", "mul") and _is_one(equation.invars[1])
    if (name in _SAME_ENTRIES or divided) and len(set(sizes)) == 1:
        return [origins[0]] * len(equation.outvars)
    return [object() for _ in equation.outvars]


def _size(atom: Any) -> int:
    size = 1
    for length in atom.aval.shape:
        size *= length
    return size


def _is_one(atom: Any) -> bool:
    return isinstance(atom, Literal) and bool(atom.val == 1)
