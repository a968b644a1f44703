"""The linear system of one batch: a traced network, whitened outputs, a damping.

With the Fisher information `F = L L'` of a prediction its whitened output is `L' theta`, one small
matrix per element. In these coordinates a step of length 1 is a divergence of 1/2 nat, whatever
the family. Vectors of the whole batch have the shape `(outputs, rows)`: an example is a row, and a
row has as many outputs as its distribution has coordinates.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun
from jax.typing import DTypeLike

from fisher8_jax._fisher8 import vary_over
from fisher8_jax._internal.checks import (
    check_axis_name_is_bound,
    check_mask,
    check_positive,
    check_weights,
)
from fisher8_jax._internal.numerics import AxisName, at_least_float32
from fisher8_jax._internal.trees import register_tree
from fisher8_jax._masking import zero_outside
from fisher8_jax.curvature._leaf_forms import GramPlan, make_plan
from fisher8_jax.curvature._trace import (
    ForwardPass,
    PredictOne,
    TracedNetwork,
    run,
    trace,
    vary_with,
)
from fisher8_jax.families import Family


@register_tree
@dataclasses.dataclass(frozen=True)
class Whitening:
    """The change of coordinates of every element of the batch.

    Attributes:
        factor: `L`, shape `batch_shape + (p, p)`.
        root_weights: roots of the elements' weights, 0 outside the mask; None where all are 1.
        is_weighted: whether some weights are neither 0 nor 1.
    """

    factor: Array
    root_weights: Array | None
    is_weighted: bool = dataclasses.field(metadata={"static": True})

    @property
    def outputs(self) -> int:
        """How many coordinates the distribution of a row has."""
        return math.prod(self.factor.shape[1:-1])

    @property
    def where(self) -> Array | None:
        """The elements that count, None where all do."""
        return None if self.root_weights is None else self.root_weights != 0

    def whiten_natural(self, natural: Array) -> Array:
        """`u` with `sqrt(w) L u = g`, from the natural cotangent `F^-1 g`; batch_shape + (p,)."""
        whitened = jnp.sum(self.factor * natural[..., :, None], -2)  # einsum would not fuse
        if self.root_weights is None:
            return whitened
        roots = self.root_weights[..., None]
        return jnp.where(roots == 0, 0, whitened / jnp.where(roots == 0, 1, roots))

    def whiten(self, tangent: Array) -> Array:
        """`sqrt(w) L' tangent`, shape batch_shape + (p,)."""
        whitened = jnp.sum(self.factor * tangent[..., :, None], -2)
        return whitened if self.root_weights is None else whitened * self.root_weights[..., None]

    def to_cotangent(self, whitened: Array) -> Array:
        """`sqrt(w) L whitened`, shape batch_shape + (p,)."""
        cotangent = jnp.sum(self.factor * whitened[..., None, :], -1)
        return cotangent if self.root_weights is None else cotangent * self.root_weights[..., None]

    def unit_cotangents(self) -> Array:
        """Cotangents that give the rows of the whitened Jacobian.

        Shape `(outputs, rows, elements of a row, p)`, where `outputs = elements * p`.
        """
        factor = self.factor
        if self.root_weights is not None:
            factor = factor * self.root_weights[..., None, None]
        rows, size = factor.shape[0], factor.shape[-1]
        factor = factor.reshape(rows, -1, size, size)
        elements = factor.shape[1]
        columns = jnp.moveaxis(factor, -1, 0)  # (p, rows, elements, p)
        own = jnp.eye(elements, dtype=factor.dtype)[:, None, None, :, None]
        return (own * columns[None]).reshape(elements * size, rows, elements, size)


def whiten_batch(dist: Family, where: Array | None, weights: Array | None) -> Whitening:
    """The whitening of a batch; mask and weights have been expanded to its shape."""
    factor = dist.fisher_factor()
    if where is None and weights is None:
        return Whitening(factor, None, is_weighted=False)
    roots = jnp.ones(dist.batch_shape, factor.dtype)
    if weights is not None:
        roots = jnp.sqrt(at_least_float32(weights).astype(factor.dtype))
    roots = roots if where is None else jnp.where(where, roots, 0)
    return Whitening(factor, roots, is_weighted=weights is not None)


class WhitenedJacobian(NamedTuple):
    """The whitened Jacobian of the trainable leaves, as two functions; a pytree.

    Attributes:
        derivative: the linear function from steps of the leaves to steps of the outputs.
        leaves: the parameters, for their shapes.
        dist: the predictions, for their shape.
        whitening: their coordinates.
    """

    derivative: Any
    leaves: list[Array]
    dist: Family
    whitening: Whitening

    def push(self, step: list[Array]) -> Array:
        """The whitened movement of the outputs, `(outputs, rows)`."""
        moved = self.derivative([s.astype(x.dtype) for s, x in zip(step, self.leaves, strict=True)])
        tangent = jax.tree.unflatten(jax.tree.structure(self.dist), moved)
        return outputs_first(self.whitening.whiten(tangent.widen().to_vector()))

    def pull(self, outputs: Array) -> list[Array]:
        """The transpose of `push`."""
        try:
            return jax.linear_transpose(self.push, self.leaves)(outputs)[0]
        except Exception as error:
            raise ValueError(
                "`predict_one` contains an operation without reverse-mode derivative, such as "
                "`jax.lax.while_loop`. Give a loop a known number of iterations "
                "(`jax.lax.fori_loop` or `scan`)."
            ) from error

    def gram_product(self, outputs: Array, axis_name: AxisName | None) -> Array:
        """`J J'` times `outputs`."""
        step = self.pull(outputs)
        if axis_name is not None:
            step = vary_over(axis_name, lax.psum(step, axis_name))
        return self.push(step)


def outputs_first(vectors: Array) -> Array:
    """From `batch_shape + (p,)` to `(outputs, rows)`."""
    return vectors.reshape(vectors.shape[0], -1).T


def rows_first(outputs: Array, dist: Family) -> Array:
    """From `(outputs, rows)` to `batch_shape + (p,)`."""
    return outputs.T.reshape(*dist.batch_shape, -1)


class Mask(NamedTuple):
    """Which elements of the batch count, and how much."""

    where: Array | None
    weights: Array | None

    def expand(self, shape: tuple[int, ...]) -> Self:
        """Mask and weights in the shape of the predictions."""
        where, weights = self.where, self.weights
        if where is not None:
            where = check_mask("where", where, shape)
        if weights is not None:
            weights = check_weights("weights", weights, shape)
        return self._replace(where=where, weights=weights)

    def inside(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """1 for the elements that count, shape `(rows, elements)`."""
        inside = jnp.ones(shape, dtype) if self.where is None else self.where.astype(dtype)
        return inside.reshape(shape[0], -1)


@dataclasses.dataclass(frozen=True)
class Problem:
    """The linear system of one batch, before anything is solved.

    Attributes:
        network: the traced network.
        plan: how each of its leaves enters the Gram matrix.
        leaves: its parameters.
        data: the leaves of the inputs.
        forward: the forward pass of the batch.
        dist: its predictions.
        whitening: their coordinates.
        mask: the elements that count.
        inside: 1 for every element of a row that counts, 0 for the others.
        elements: how many elements the mean runs over.
        damping: what is added to the whitened curvature.
        axis_name: the mapped axis that the rows are split over.
    """

    network: TracedNetwork
    plan: GramPlan
    leaves: list[Array]
    data: list[Array]
    forward: ForwardPass
    dist: Family
    whitening: Whitening
    mask: Mask
    inside: Array
    elements: Array
    damping: Array
    axis_name: AxisName | None

    @functools.cached_property
    def deltas(self) -> Any:
        """The whitened outputs' derivatives with respect to the results of all uses.

        One backward pass for each output; first axis the output, second the row.
        """

        def pull_back(unit: Array) -> Any:
            vector = unit.reshape(*self.dist.batch_shape, -1)
            cotangent = jax.tree.leaves(self.dist.from_vector(vector))
            outputs = self.forward.outputs
            cast = [c.astype(o.dtype) for c, o in zip(cotangent, outputs, strict=True)]
            return self.forward.pull_back(cast)

        return jax.vmap(pull_back)(self.whitening.unit_cotangents())

    @functools.cached_property
    def jacobian(self) -> WhitenedJacobian:
        """The Jacobian of the whitened outputs as a function."""
        network, data, chosen = self.network, self.data, self._trainable

        def predict(trainable: list[Array]) -> list[Array]:
            every = list(self.leaves)
            for index, leaf in zip(chosen, trainable, strict=True):
                every[index] = leaf
            return jax.vmap(lambda *example: jaxpr_as_fun(network.program)(*every, *example))(*data)

        leaves = [self.leaves[index] for index in chosen]
        _, derivative = jax.linearize(predict, leaves)
        return WhitenedJacobian(derivative, leaves, self.dist, self.whitening)

    @property
    def _trainable(self) -> list[int]:
        return [i for i, _ in enumerate(self.leaves) if self.network.is_trainable(i)]

    def movement(self, step: ArrayTree) -> Array:
        """How far a step of the parameters moves the whitened outputs, `(outputs, rows)`."""
        steps = jax.tree.leaves(step)
        return self.jacobian.push([steps[index] for index in self._trainable])

    def pull(self, outputs: Array) -> list[Array]:
        """`J'` times whitened outputs by one backward pass; zeros for leaves of integers."""
        every = [jnp.zeros_like(leaf) for leaf in self.leaves]
        for index, leaf in zip(self._trainable, self.jacobian.pull(outputs), strict=True):
            every[index] = leaf
        return every


def pose(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    *,
    damping: Numeric,
    mask: Mask,
    axis_name: AxisName | None,
) -> Problem:
    """The linear system; arguments as in `network_curvature`."""
    check_positive("damping", damping)
    if jnp.ndim(damping) > 0:
        raise ValueError(
            f"`damping` must be a number or a scalar array, got shape {jnp.shape(damping)}. Give "
            "parameters dampings of their own by scaling them inside `predict_one`."
        )
    if axis_name is not None:
        check_axis_name_is_bound(axis_name)
    given = vary_over(axis_name, (params, inputs))
    params, inputs = jax.tree.map(lax.stop_gradient, given)
    data = [jnp.asarray(x) for x in jax.tree.leaves(inputs)]
    _check_rows(data)
    leaves = vary_with([jnp.asarray(leaf) for leaf in jax.tree.leaves(params)], data)
    network = trace(predict_one, params, leaves, data, inputs)
    _check_leaves(network.names, leaves)
    forward = run(network, leaves, data)
    dist: Family = jax.tree.unflatten(jax.tree.structure(network.prediction), forward.outputs)
    mask = mask.expand(dist.batch_shape)
    hidden = jax.tree.map(lambda leaf: zero_outside(leaf, mask.where), dist)
    whitening = whiten_batch(hidden, mask.where, mask.weights)
    dtype = whitening.factor.dtype
    inside = mask.inside(dist.batch_shape, dtype)
    elements = jnp.sum(inside)
    if axis_name is not None:
        elements = lax.psum(elements, axis_name)
    return Problem(
        network=network,
        plan=make_plan(network, data[0].shape[0], whitening.outputs),
        leaves=leaves,
        data=data,
        forward=forward,
        dist=dist,
        whitening=whitening,
        mask=mask,
        inside=inside,
        elements=jnp.maximum(elements, 1),
        damping=jnp.asarray(damping, dtype),
        axis_name=axis_name,
    )


def _check_rows(data: list[Array]) -> None:
    """Raises unless all inputs have the same first axis."""
    shapes = [x.shape for x in data]
    if not shapes or any(len(shape) == 0 for shape in shapes) or len({s[0] for s in shapes}) > 1:
        raise ValueError(
            "`inputs` must be arrays that share their first axis, the batch, got shapes "
            f"{shapes}. What all examples share belongs into `params` or into a closure."
        )
    if shapes[0][0] == 0:
        raise ValueError(f"`inputs` must have at least one row, got shapes {shapes}.")


def _check_leaves(names: Sequence[str], leaves: Sequence[Array]) -> None:
    for name, leaf in zip(names, leaves, strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise TypeError(
                f"The parameter `{name}` is complex ({leaf.dtype}), and its natural gradient is "
                "not defined here. Keep real and imaginary part as two real parameters."
            )
