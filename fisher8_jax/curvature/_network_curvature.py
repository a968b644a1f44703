"""Fisher8 for the whole network: the damped natural gradient, as a change of the cotangent.

With the Jacobian `J` of all outputs of the batch, `n` elements and the Fisher information `F` of
the predictions, the natural gradient of the whole network for a mean loss with gradient `J' g` is

    (J' F J / n + damping)^-1 J' g  =  J' L z,    (L' J J' L / n + damping) z = L^-1 g,    F = L L'

On the left the matrix has as many rows as parameters, on the right as many as outputs. So the
method stays a change of the cotangent at the output, `L z` for `g`, and ordinary back-propagation.
"""

import dataclasses
import math
from typing import Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array, lax
from jax.typing import DTypeLike

from fisher8_jax._fisher8 import vary_over
from fisher8_jax._internal.checks import (
    check_axis_name_is_bound,
    check_mask,
    check_positive,
    check_weights,
)
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax._internal.trees import register_tree
from fisher8_jax._masking import zero_outside
from fisher8_jax.curvature._describe import describe
from fisher8_jax.curvature._linear import outputs_first, rows_first
from fisher8_jax.curvature._plan import LeafPlan, make_plan
from fisher8_jax.curvature._problem import Problem
from fisher8_jax.curvature._scale import Scale, full_scale, is_scale, scale_leaves
from fisher8_jax.curvature._solvers import Prepared, Solver, choose_solver
from fisher8_jax.curvature._trace import PredictOne, run, trace, vary_with
from fisher8_jax.curvature._whitening import Whitening, whitening
from fisher8_jax.families import Family

# The best single value by the held-out rows of four UCI sets, together with the radius of
# `network_optimizer`.
DAMPING = 0.3


@register_tree
@dataclasses.dataclass(frozen=True)
class NetworkCurvature:
    """The curvature of a network on one batch; made by `network_curvature`.

    Attributes:
        dist: the predictions of the batch. No gradient flows through them.
        whitening: the change to coordinates in which the Fisher information is the identity.
        prepared: what the solver keeps.
        carried: the whitened movement of the step that will be added, or None.
        scale: the size of the damping for every parameter, or None.
        report: two zeros, whose cotangents are the slope of the loss along the step and half the
            mean square of the step's whitened movement, its divergence to second order; under
            `axis_name` the part of this place, to be added up.
        solver: how the system is solved.
        axis_name: the mapped axis that the batch is split over.
        leaves: how each parameter leaf is handled.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> def predict_one(params, x):
        ...     return Gaussian(jnp.tanh(x @ params["hidden"]).sum(), params["log_variance"])
        >>> params = {"hidden": jnp.ones((8, 16)), "log_variance": jnp.zeros(())}
        >>> curvature = network_curvature(predict_one, params, jnp.ones((4, 8)), damping=0.1)
        >>> print(curvature.describe())
        direct: one Cholesky factorisation of the whole batch; 8 unknowns, ...
        leaf          shape    form   uses         numbers  operations
        hidden        (8, 16)  pairs  dot_general       64       2,432
        log_variance  ()       rows   output             8         128
    """

    dist: Family
    whitening: Whitening
    prepared: Prepared
    carried: Array | None
    scale: ArrayTree | None
    report: Array
    solver: Solver = dataclasses.field(metadata={"static": True})
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    leaves: tuple[LeafPlan, ...] = dataclasses.field(metadata={"static": True})

    def solve(self, natural: Array) -> tuple[Array, Array]:
        """The cotangent to back-propagate instead of the natural one.

        Args:
            natural: `F^-1 g`, all coordinates of an element in one vector, `batch_shape + (p,)`.

        Returns:
            `L z` of the module's docstring in the same shape, and the numbers of `report`, zeros
            unless `knows_movement`.
        """
        solution, report = self.solve_whitened(natural)
        return self.whitening.to_cotangent(solution), report

    def solve_whitened(self, natural: Array) -> tuple[Array, Array]:
        """`z` of the module's docstring in the shape of `natural`, and the numbers of `report`."""
        gradient = outputs_first(self.whitening.whiten_natural(natural))
        gradient = gradient.astype(self.prepared.damping.dtype)
        right = gradient
        if self.carried is not None:
            right = right - self.carried / self.prepared.elements
        solution = self.solver.solve(self.prepared, right, self.axis_name)
        return rows_first(solution, self.dist), self._report(gradient, solution)

    @property
    def knows_movement(self) -> bool:
        """Whether the divergence of the step comes out of the solve; not with weights or blocks."""
        return self.solver.knows_movement and not self.whitening.is_weighted

    def _report(self, gradient: Array, solution: Array) -> Array:
        if not self.knows_movement:
            return jnp.zeros_like(self.report)
        moved = self.solver.movement(self.prepared, solution, self.axis_name)
        if self.carried is not None:
            moved = moved + self.carried
        slope, square = jnp.sum(gradient * moved), jnp.sum(jnp.square(moved))
        # Beyond the range of numbers is still a length that a radius can shorten.
        square = jnp.minimum(square, jnp.finfo(square.dtype).max)
        return jnp.stack([slope, 0.5 * square / self.prepared.elements])

    def divide(self, gradient: ArrayTree) -> ArrayTree:
        """`D^-1 gradient`, the last step of the solution if there is a `damping_scale`."""
        if self.scale is None:
            return gradient

        def divide(scale: Scale, leaf: Array) -> Array:
            return (leaf / full_scale(scale)).astype(leaf.dtype)

        return jax.tree.map(divide, self.scale, gradient, is_leaf=is_scale)

    def describe(self) -> str:
        """A table: how the system is solved, and how each leaf enters it at what cost."""
        outputs = math.prod(self.whitening.factor.shape[:-1])
        return describe(self.solver.describe(), outputs, self.leaves)


def network_curvature(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    *,
    damping: Numeric = DAMPING,
    where: Array | None = None,
    weights: Array | None = None,
    axis_name: AxisName | None = None,
    solver: Solver | Literal["auto"] = "auto",
    damping_scale: ArrayTree | None = None,
    carried: ArrayTree | None = None,
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
        damping: positive, a number or a scalar array; 0.3 suits tables, less smooth functions with
            little noise, more few and noisy rows. Large, and the result is the gradient divided by
            it; small, and the predictions of the batch move by the natural gradient.
        where: boolean mask of the elements, as given to the loss.
        weights: importance of each element, as given to the loss.
        axis_name: the mapped axis (or axes) that the batch is split over under `jax.vmap` or
            `jax.shard_map`. Not needed under `jax.jit` with sharded arrays.
        solver: `Direct()`, `Blocks(rows)`, `ConjugateGradients()`; 'auto' takes the first unless
            its matrices would be huge, and then the last. `describe()` says which.
        damping_scale: `D`, a tree like `params` of positive arrays or `FactoredScale`: the result
            is `(J' F J / n + damping D)^-1 gradient` once the gradient has passed `divide`.
        carried: a tree like `params` that will be added to the result, such as momentum. The result
            is then what is missing to the solution nearest to it, see `carry_momentum`.

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
    problem = pose(predict_one, params, inputs, damping, Mask(where, weights, axis_name))
    return curve(problem, params, solver, damping_scale, carried)


def curve(
    problem: Problem,
    params: ArrayTree,
    solver: Solver | Literal["auto"],
    damping_scale: ArrayTree | None,
    carried: ArrayTree | None,
) -> NetworkCurvature:
    """The curvature of a problem; arguments as in `network_curvature`."""
    damping_scale, carried = jax.tree.map(lax.stop_gradient, (damping_scale, carried))
    local_scale, carried = vary_over(problem.axis_name, (damping_scale, carried))
    if damping_scale is not None:
        problem = _with_scale(problem, scale_leaves(local_scale, params))
    chosen = choose_solver(problem) if solver == "auto" else solver
    return NetworkCurvature(
        dist=problem.dist,
        whitening=problem.whitening,
        prepared=chosen.prepare(problem),
        carried=None if carried is None else problem.movement(carried),
        scale=damping_scale,
        report=jnp.zeros(2, problem.damping.dtype),
        solver=chosen,
        axis_name=problem.axis_name,
        leaves=problem.plan.leaves,
    )


class Mask(NamedTuple):
    """Which elements of the batch count, and how much."""

    where: Array | None
    weights: Array | None
    axis_name: AxisName | None

    def expand(self, shape: tuple[int, ...]) -> Self:
        """Mask and weights in the shape of the predictions."""
        where, weights = self.where, self.weights
        if where is not None:
            where = check_mask("where", where, shape)
        if weights is not None:
            weights = check_weights("weights", weights, shape)
        return self._replace(where=where, weights=weights)

    def counts(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """How many elements of every row count."""
        inside = jnp.ones(shape, dtype) if self.where is None else self.where.astype(dtype)
        return jnp.sum(inside, tuple(range(1, len(shape))))


def pose(
    predict_one: PredictOne, params: ArrayTree, inputs: ArrayTree, damping: Numeric, mask: Mask
) -> Problem:
    """The linear system; nothing of it is computed unless it is asked for."""
    check_positive("damping", damping)
    if mask.axis_name is not None:
        check_axis_name_is_bound(mask.axis_name)
    given = vary_over(mask.axis_name, (params, inputs))
    params, inputs = jax.tree.map(lax.stop_gradient, given)
    data = [jnp.asarray(x) for x in jax.tree.leaves(inputs)]
    _check_rows(data)
    network = trace(predict_one, params, inputs)
    leaves = vary_with([jnp.asarray(leaf) for leaf in jax.tree.leaves(params)], data)
    forward = run(network, leaves, inputs)
    dist: Family = jax.tree.unflatten(jax.tree.structure(network.prediction), forward.outputs)
    mask = mask.expand(dist.batch_shape)
    hidden = jax.tree.map(lambda leaf: zero_outside(leaf, mask.where), dist)
    change = whitening(hidden, mask.where, mask.weights)
    dtype = change.factor.dtype
    counts = mask.counts(dist.batch_shape, dtype)
    elements = jnp.sum(counts)
    if mask.axis_name is not None:
        elements = lax.psum(elements, mask.axis_name)
    return Problem(
        network=network,
        plan=make_plan(network, data[0].shape[0], change.outputs),
        leaves=leaves,
        scale=None,
        data=data,
        forward=forward,
        dist=dist,
        whitening=change,
        counts=counts,
        elements=jnp.maximum(elements, 1),
        damping=jnp.asarray(damping, dtype),
        axis_name=mask.axis_name,
    )


def _with_scale(problem: Problem, scale: list[Scale]) -> Problem:
    rows, outputs = problem.data[0].shape[0], problem.whitening.outputs
    plan = make_plan(problem.network, rows, outputs, scale)
    return problem._replace(scale=scale, plan=plan)


def _check_rows(data: list[Array]) -> None:
    """Raises unless all inputs have the same first axis."""
    shapes = [x.shape for x in data]
    if not shapes or any(len(shape) == 0 for shape in shapes) or len({s[0] for s in shapes}) > 1:
        raise ValueError(
            "`inputs` must be arrays that share their first axis, the batch, got shapes "
            f"{shapes}. What all examples share belongs into `params` or into a closure."
        )
