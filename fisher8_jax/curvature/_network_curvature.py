"""The parameter-space natural gradient, of the whole network, as a change of the cotangent.

With the Jacobian `J` of all outputs of the batch, `n` elements and the Fisher information `F` of
the predictions, the natural gradient in parameter space for a mean loss with gradient `J' g` is

    (J' F J / n + damping)^-1 J' g  =  J' L z,    (L' J J' L / n + damping) z = L^-1 g,    F = L L'

On the left the matrix has as many rows as parameters, on the right as many as outputs. So the
method stays a change of the cotangent at the output, `L z` for `g`, and ordinary back-propagation.
"""

import dataclasses
import math
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array

from fisher8_jax._fisher8 import check_family, natural_cotangent, vary_over, what_natural_needs
from fisher8_jax._internal.numerics import AxisName, Scaled, l2_norm, materialize
from fisher8_jax._internal.sharding import place_like, with_auto_axes
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.curvature._cost import Choice, check_solver, choose_solver, expected_steps
from fisher8_jax.curvature._gram import Rows, leaf_rows
from fisher8_jax.curvature._leaf_forms import LeafPlan, describe
from fisher8_jax.curvature._problem import Mask, Problem, Whitening, outputs_first, pose, rows_first
from fisher8_jax.curvature._solvers import Prepared, Solver
from fisher8_jax.curvature._trace import PredictOne, check_function_of_one_example
from fisher8_jax.families import Family

SomeFamily = TypeVar("SomeFamily", bound=Family)

# The best single value by the held-out rows of four UCI sets, together with the radius of
# `network_optimizer`.
DAMPING = 0.3


class Solution(NamedTuple):
    """What a solve returns, under `axis_name` the part of this device.

    Attributes:
        whitened: `z` of the module's docstring, `(outputs, rows)`.
        slope: the derivative of the loss along the step, None where it is not known.
        step_kl: half the mean square of the step's whitened movement, its divergence to second
            order, None where it is not known.
        residual: the length of what the solution leaves of the right-hand side, relative to it and
            over all devices; None where it is not known.
    """

    whitened: Array
    slope: Array | None = None
    step_kl: Array | None = None
    residual: Array | None = None


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
        nll_steps: what a step costs in steps of plain NLL, about; None where it is not known.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> def predict_one(params, x):
        ...     return Gaussian(jnp.tanh(x @ params["hidden"]).sum(), params["log_variance"])
        >>> params = {"hidden": jnp.ones((8, 16)), "log_variance": jnp.zeros(())}
        >>> curvature = network_curvature(predict_one, params, jnp.ones((4, 8)), damping=0.1)
        >>> print(curvature.describe())
        direct: one Cholesky factorisation of the whole batch, about 1.8 NLL steps; 8 ...
        leaf          shape    form   uses         numbers  operations
        hidden        (8, 16)  pairs  dot_general       64       2,432
        log_variance  ()       rows   output             8         128
    """

    dist: Family
    whitening: Whitening
    prepared: Prepared
    solver: Solver = dataclasses.field(metadata={"static": True})
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    leaves: tuple[LeafPlan, ...] = dataclasses.field(metadata={"static": True})
    nll_steps: float | None = dataclasses.field(default=None, metadata={"static": True})

    def solve(self, natural: Array, moved: Array | None = None) -> Solution:
        """The step in whitened outputs that belongs to a natural cotangent.

        Args:
            natural: `F^-1 g`, all coordinates of an element in one vector, `batch_shape + (p,)`.
            moved: the whitened movement of a step that will be added, `(outputs, rows)`.
        """
        gradient = outputs_first(self.whitening.whiten_natural(natural))
        gradient = gradient.astype(self.prepared.damping.dtype)
        right = gradient if moved is None else gradient - moved / self.prepared.elements
        whitened, total = self.solver.solve(self.prepared, right, self.axis_name)
        if total is None:
            return Solution(whitened)
        residual = self._residual(right, whitened, total)
        if not self.knows_movement:
            return Solution(whitened, residual=residual)
        total = total if moved is None else total + moved
        square = jnp.sum(jnp.square(total))
        # Beyond the range of numbers is still a length that a radius can shorten.
        square = jnp.minimum(square, jnp.finfo(square.dtype).max)
        step_kl = 0.5 * square / self.prepared.elements
        return Solution(whitened, jnp.sum(gradient * total), step_kl, residual)

    def _residual(self, right: Array, whitened: Array, moved: Array) -> Array:
        left = right - moved / self.prepared.elements - self.prepared.damping * whitened
        return self._norm(left) / jnp.where((size := self._norm(right)) > 0, size, 1)

    def _norm(self, vector: Array) -> Array:
        flat = Scaled(vector.reshape(-1))
        norm = l2_norm(flat, (0,), self.axis_name)
        return (jnp.exp(norm.log_max) * jnp.sqrt(norm.sum_sq))[0]

    @property
    def knows_movement(self) -> bool:
        """Whether the divergence of the step comes out of the solve; not with weights or blocks."""
        return self.solver.knows_movement and not self.whitening.is_weighted

    def describe(self) -> str:
        """A table: how the system is solved, and how each leaf enters it at what cost."""
        outputs = math.prod(self.whitening.factor.shape[:-1])
        cost = "" if self.nll_steps is None else f", about {self.nll_steps:.1f} NLL steps"
        return describe(self.solver.describe() + cost, outputs, self.leaves)


def network_curvature(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    *,
    damping: Numeric = DAMPING,
    where: Array | None = None,
    weights: Array | None = None,
    axis_name: AxisName | None = None,
    solver: Choice = "auto",
) -> NetworkCurvature:
    """The Fisher information of a whole network on one batch, ready to be divided by.

    Hand the result to `precondition`. The gradient of the mean loss with respect to the parameters
    is then

        (J' F J / n + damping I)^-1 gradient

    exactly, with the Jacobian `J` of the batch's outputs and the `n` elements inside `where`. The
    parameters' Jacobian is never formed where a cheaper way exists. No gradient flows through the
    result. `network_gradient` does all of it in one call.

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
        solver: `Direct()`, `Blocks(rows)`, `ConjugateGradients()`; 'auto' is `Auto()`, the most
            exact of them within 10 steps of plain NLL and 1 GB. `describe()` says which.

    Returns:
        A pytree that may cross `jax.jit` and `jax.lax.scan`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> from fisher8_jax.curvature import precondition
        >>> def predict_one(params, x):
        ...     return Gaussian(params[0] + params[1] * x, params[2])
        >>> x, y, params = jnp.arange(4.0), jnp.array([1.0, 3.0, 5.0, 7.0]), jnp.zeros(3)
        >>> curvature = network_curvature(predict_one, params, x, damping=1e-3)
        >>> def loss(params):
        ...     dist = jax.vmap(predict_one, (None, 0))(params, x)
        ...     return precondition(dist, curvature).nll(y).mean()
        >>> print((-jax.grad(loss)(params)[:2]).round(2))  # one step to the line 1 + 2 x
        [1. 2.]
    """
    check_solver(solver)
    check_function_of_one_example(predict_one, params)

    def compute(
        params: ArrayTree, inputs: ArrayTree, damping: Numeric, mask: Mask
    ) -> NetworkCurvature:
        problem = pose(predict_one, params, inputs, damping=damping, mask=mask, axis_name=axis_name)
        return curve(problem, solver)[1]

    return with_auto_axes(compute, params, inputs, damping, Mask(where, weights))


def curve(problem: Problem, solver: Choice) -> tuple[Rows, NetworkCurvature]:
    """The rows of a problem and its curvature."""
    chosen = choose_solver(problem, solver)
    rows = leaf_rows(problem) if chosen.needs_deltas else {}
    return rows, NetworkCurvature(
        dist=problem.dist,
        whitening=problem.whitening,
        prepared=chosen.prepare(problem, rows),
        solver=chosen,
        axis_name=problem.axis_name,
        leaves=problem.plan.leaves,
        nll_steps=expected_steps(problem, chosen),
    )


def precondition(dist: SomeFamily, curvature: NetworkCurvature) -> SomeFamily:
    """Returns `dist` unchanged; the gradient of a mean loss becomes the one in parameter space.

    What `fisher8` is for natural gradients at the output, this is for those of the whole network:
    put it between the network and any loss, and take the mean over the elements inside the mask
    that `network_curvature` got. There is no unit norm: gradients stay proportional to the loss,
    so devices add up or average theirs as they would those of the loss itself.

    Args:
        dist: the predictions of the batch that `curvature` was computed for.
        curvature: from `network_curvature`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_curvature
        >>> from fisher8_jax.curvature import precondition
        >>> predict_one = lambda slope, x: Gaussian(slope * x, jnp.zeros(()))
        >>> x, y = jnp.arange(4.0), 3 * jnp.arange(4.0)
        >>> curvature = network_curvature(predict_one, jnp.zeros(()), x, damping=1e-3)
        >>> def loss(slope):
        ...     dist = precondition(jax.vmap(predict_one, (None, 0))(slope, x), curvature)
        ...     return dist.crps(y).mean()  # any loss of the distribution
        >>> print(f"{jax.grad(loss)(0.0):.2f}")
        -0.43
    """
    shape, expected = check_family("`dist`", dist).batch_shape, curvature.dist.batch_shape
    if shape != expected or type(dist) is not type(curvature.dist):
        raise ValueError(
            f"`curvature` belongs to predictions `{type(curvature.dist).__name__}` of shape "
            f"{expected}, but `dist` is `{type(dist).__name__}` of shape {shape}. Compute it from "
            "the same batch: `network_curvature(predict_one, params, inputs, ...)`."
        )
    return _precondition(vary_over(curvature.axis_name, dist), curvature)


@jax.custom_vjp
def _precondition(dist: SomeFamily, curvature: NetworkCurvature) -> SomeFamily:
    return dist


def _precondition_forward(dist, curvature):
    return dist, (what_natural_needs(dist), curvature)


def _precondition_backward(residuals, cotangent):
    solved = with_auto_axes(_solve_for, *residuals, cotangent)
    return place_like(solved, cotangent), None


def _solve_for(dist: Family, curvature: NetworkCurvature, cotangent: SomeFamily) -> SomeFamily:
    """What to back-propagate instead of `cotangent`."""
    natural = natural_cotangent(dist, cotangent, curvature.whitening.where)
    plain = {name: materialize(x) for name, x in natural.items()}
    vectors = dataclasses.replace(cotangent, **plain)
    solution = curvature.solve(vectors.to_vector())
    whitened = rows_first(solution.whitened, curvature.dist)
    solved = vectors.from_vector(curvature.whitening.to_cotangent(whitened))
    return jax.tree.map(lambda x, leaf: x.astype(leaf.dtype), solved, cotangent)


_precondition.defvjp(_precondition_forward, _precondition_backward)
