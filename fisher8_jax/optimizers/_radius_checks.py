"""Argument checks of the KL radius and its presets, with the wording of their errors."""

from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr

from fisher8_jax._internal.checks import check_count

_USAGE = "`optimizer.update(grads, state, params, predict=lambda p: network(p, inputs))`"


def check_steps(name: str, value: object) -> None:
    """Rejects what is no positive integer; of an array only the dtype counts."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.integer):
        return
    check_count(name, value)


def check_measure_every(measure_every: object, *, exact: bool) -> None:
    """Rejects what is no number of steps, and `exact`, which measures every step."""
    if measure_every is None:
        return
    check_steps("measure_every", measure_every)
    if exact:
        raise ValueError(
            "`exact=True` measures every step, and `measure_every` leaves measurements out. Give "
            "one of the two."
        )


def check_precision(params: optax.Params, program: Jaxpr) -> None:
    """Rejects parameters and computations that are too coarse for a finite difference."""
    leaves = [jnp.asarray(leaf).dtype for leaf in jax.tree.leaves(params)]
    for name, dtypes in (("parameters", leaves), ("`predict`", _dtypes(program))):
        narrow = {str(d) for d in dtypes if jnp.issubdtype(d, jnp.floating) and d.itemsize < 4}
        if narrow:
            raise ValueError(
                "`measure='difference'` takes a step of a thousandth of a parameter, which is lost "
                f"in {', '.join(sorted(narrow))} ({name}). Compute in float32 or use "
                "measure='derivative'."
            )


def _dtypes(program: Jaxpr) -> Iterator[Any]:
    """Those of all intermediate results."""
    for equation in program.eqns:
        yield from (v.aval.dtype for v in equation.outvars if hasattr(v.aval, "dtype"))
        for body in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if isinstance(body, ClosedJaxpr | Jaxpr):
                yield from _dtypes(body.jaxpr if isinstance(body, ClosedJaxpr) else body)


def _is_program(value: object) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


def check_update_arguments(
    updates: optax.Updates,
    params: optax.Params | None,
    predict: object,
    *,
    needs_predict: bool,
) -> None:
    """Says what an update needs, before JAX can fail with something less clear."""
    if params is None:
        raise ValueError(f"The KL radius needs `params`. Call {_USAGE}.")
    if predict is None and needs_predict:
        raise ValueError(
            "The KL radius needs `predict`, a function from parameters to the predicted "
            f"distribution of the current batch. Call {_USAGE}. `TrainState.apply_gradients` of "
            "Flax Linen does not forward it; that of `fisher8_jax.heads.linen.TrainState` does. "
            "`heads.nnx.predict_fn(model, inputs)` makes it from an NNX model."
        )
    if predict is not None and not callable(predict):
        raise TypeError(
            f"`predict` must be a function from parameters to a distribution, got "
            f"{type(predict).__name__}. Call {_USAGE}."
        )
    check_trees(updates, params)


def check_trees(updates: optax.Updates, params: optax.Params) -> None:
    """Says that both must be whole and alike."""
    if _has_masked_nodes(updates) or _has_masked_nodes(params):
        raise ValueError(
            "The KL radius measures the whole update, but it was given a masked part of it. Put "
            "it last in the outermost `optax.chain`, outside `optax.masked` and `optax.partition`."
        )
    structures: list[object] = [jax.tree.structure(tree) for tree in (updates, params)]
    if structures[0] != structures[1]:
        raise ValueError(
            "`updates` and `params` must be trees of the same structure, got "
            f"{structures[0]} and {structures[1]}. Pass the gradient of the same tree."
        )


def _has_masked_nodes(tree: chex.ArrayTree) -> bool:
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, optax.MaskedNode))
    return any(isinstance(leaf, optax.MaskedNode) for leaf in leaves)
