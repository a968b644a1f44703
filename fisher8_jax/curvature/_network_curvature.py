"""Fisher8 for the whole network: the damped natural gradient, as a change of the cotangent.

With the Jacobian `J` of all outputs of the batch, `n` elements and the Fisher information `F` of
the predictions, the natural gradient of the whole network for a mean loss with gradient `J' g` is

    (J' F J / n + damping)^-1 J' g  =  J' L z,    (L' J J' L / n + damping) z = L^-1 g,    F = L L'

On the left the matrix has as many rows as parameters, on the right as many as outputs. So the
method stays a change of the cotangent at the output, `L z` for `g`, and ordinary back-propagation.
"""

import dataclasses
import math
from typing import NamedTuple, Self

import chex
import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array, lax
from jax.typing import DTypeLike

from fisher8_jax._checks import check_axis_name_is_bound, check_mask, check_positive, check_weights
from fisher8_jax._fisher8 import vary_over
from fisher8_jax._masking import zero_outside
from fisher8_jax._numerics import AxisName
from fisher8_jax._trees import register_tree
from fisher8_jax.curvature._plan import LeafPlan, make_plan
from fisher8_jax.curvature._solvers import Direct, Problem, Solver
from fisher8_jax.curvature._trace import Pass, PredictOne, run, trace
from fisher8_jax.curvature._whitening import Whitening, whitening
from fisher8_jax.families import Family


@register_tree
@dataclasses.dataclass(frozen=True)
class NetworkCurvature:
    """The curvature of a network on one batch; made by `network_curvature`.

    Attributes:
        dist: the predictions of the batch. No gradient flows through them.
        whitening: the change to coordinates in which the Fisher information is the identity.
        prepared: what the solver keeps.
        solver: how the system is solved.
        axis_name: the mapped axis that the batch is split over.
        leaves: how each parameter leaf is handled.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> def predict_one(params, x):
        ...     return Gaussian(params["kernel"] @ x, params["log_variance"])
        >>> params = {"kernel": jnp.ones(2), "log_variance": jnp.zeros(())}
        >>> curvature = network_curvature(predict_one, params, jnp.ones((3, 2)), damping=0.1)
        >>> [(leaf.name, leaf.form) for leaf in curvature.leaves]
        [('kernel', 'outer'), ('log_variance', 'rows')]
    """

    dist: Family
    whitening: Whitening
    prepared: ArrayTree
    solver: Solver = dataclasses.field(metadata={"static": True})
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    leaves: tuple[LeafPlan, ...] = dataclasses.field(metadata={"static": True})

    def solve(self, natural: Array) -> Array:
        """The cotangent to back-propagate instead of the natural one.

        Args:
            natural: `F^-1 g`, all coordinates of an element in one vector, `batch_shape + (p,)`.

        Returns:
            `L z` of the module's docstring, in the same shape.
        """
        right = self.whitening.whiten_natural(natural)
        rows = right.shape[0]
        outputs_first = right.reshape(rows, -1).T
        solution = self.solver.solve(self.prepared, outputs_first, self.axis_name)
        return self.whitening.to_cotangent(solution.T.reshape(right.shape))


def network_curvature(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    *,
    damping: Numeric,
    where: Array | None = None,
    weights: Array | None = None,
    axis_name: AxisName | None = None,
    solver: Solver | None = None,
) -> NetworkCurvature:
    """The Fisher information of a whole network on one batch, ready to be divided by.

    Hand the result to `fisher8` or `fisher8_nll`. The gradient of the mean loss with respect to the
    parameters is then

        (J' F J / n + damping I)^-1 gradient

    exactly, with the Jacobian `J` of the batch's outputs and the `n` elements inside `where`. The
    parameters' Jacobian is never formed where a cheaper way exists. No gradient flows through the
    result.

    Args:
        predict_one: `predict_one(params, example) -> distribution` of one example, no batch axis.
            Examples cannot influence each other: batch statistics must be frozen.
        params: the parameters, any pytree. Leaves that are not floating-point count as constants.
        inputs: a pytree of arrays whose first axis is the batch.
        damping: positive, a number or a scalar array. Large, and the result is the gradient divided
            by it; small, and the predictions of the batch move by the natural gradient.
        where: boolean mask of the elements, as given to the loss.
        weights: importance of each element, as given to the loss.
        axis_name: the mapped axis (or axes) that the batch is split over under `jax.vmap` or
            `jax.shard_map`. Not needed under `jax.jit` with sharded arrays.
        solver: how the system is solved.

    Returns:
        A pytree that may cross `jax.jit` and `jax.lax.scan`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, fisher8_nll, network_curvature
        >>> def predict_one(params, x):
        ...     return Gaussian(params[0] + params[1] * x, params[2])
        >>> x, y, params = jnp.arange(4.0), jnp.array([1.0, 3.0, 5.0, 7.0]), jnp.zeros(3)
        >>> curvature = network_curvature(predict_one, params, x, damping=1e-3)
        >>> def loss(params):
        ...     dist = jax.vmap(predict_one, (None, 0))(params, x)
        ...     return fisher8_nll(dist, y, curvature=curvature).mean()
        >>> print((-jax.grad(loss)(params)[:2]).round(2))  # one step to the line 1 + 2 x
        [1. 2.]
    """
    check_positive("damping", damping)
    if axis_name is not None:
        check_axis_name_is_bound(axis_name)
    params, inputs = jax.tree.map(lax.stop_gradient, vary_over(axis_name, (params, inputs)))
    network = trace(predict_one, params, inputs)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(params)]
    forward = run(network, leaves, inputs)
    dist: Family = jax.tree.unflatten(jax.tree.structure(network.prediction), forward.outputs)
    elements = _Elements.check(dist.batch_shape, where, weights, axis_name)
    change = whitening(elements.hide(dist), elements.where, elements.weights)
    units = change.unit_cotangents()
    plan = make_plan(network, units.shape[1], units.shape[0])
    problem = Problem(
        network=network,
        plan=plan,
        leaves=leaves,
        forward=forward,
        deltas=_deltas(forward, dist, units),
        elements=elements.number(change.factor.dtype),
        damping=jnp.asarray(damping, change.factor.dtype),
        axis_name=axis_name,
    )
    solver = Direct() if solver is None else solver
    return NetworkCurvature(dist, change, solver.prepare(problem), solver, axis_name, plan.leaves)


class _Elements(NamedTuple):
    """Which elements of the batch count, and how much."""

    shape: tuple[int, ...]
    where: Array | None
    weights: Array | None
    axis_name: AxisName | None

    @classmethod
    def check(
        cls,
        shape: tuple[int, ...],
        where: Array | None,
        weights: Array | None,
        axis_name: AxisName | None,
    ) -> Self:
        if where is not None:
            where = check_mask("where", where, shape)
        if weights is not None:
            weights = check_weights("weights", weights, shape)
        return cls(shape, where, weights, axis_name)

    def hide(self, dist: Family) -> Family:
        """`dist` with a harmless prediction outside the mask."""
        return jax.tree.map(lambda leaf: zero_outside(leaf, self.where), dist)

    def number(self, dtype: DTypeLike) -> Array:
        """How many elements there are, in all places along `axis_name`; at least 1."""
        count = jnp.asarray(math.prod(self.shape), dtype)
        if self.where is not None:
            count = jnp.sum(self.where, dtype=dtype)
        if self.axis_name is not None:
            count = lax.psum(count, self.axis_name)
        return jnp.maximum(count, 1)


def _deltas(forward: Pass, dist: Family, units: Array) -> chex.ArrayTree:
    """One backward pass for each whitened output."""

    def pull_back(unit: Array) -> chex.ArrayTree:
        vector = unit.reshape(*dist.batch_shape, -1)
        cotangent = jax.tree.leaves(dist.from_vector(vector))
        outputs = forward.outputs
        cast = [c.astype(o.dtype) for c, o in zip(cotangent, outputs, strict=True)]
        return forward.pull_back(cast)

    return jax.vmap(pull_back)(units)
