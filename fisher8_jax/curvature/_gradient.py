"""Loss, natural gradient of the whole network and what is known about its step, in one call."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array, lax

from fisher8_jax._fisher8 import fisher8, fisher8_nll, vary_over, weighted_values
from fisher8_jax._internal.numerics import AxisName, at_least_float32
from fisher8_jax.curvature._backward import pull_back
from fisher8_jax.curvature._linear import outputs_first
from fisher8_jax.curvature._network_curvature import DAMPING, Mask, NetworkCurvature, curve, pose
from fisher8_jax.curvature._problem import Problem
from fisher8_jax.curvature._scale import SecondMoments, scale_leaves
from fisher8_jax.curvature._solvers import Solver
from fisher8_jax.curvature._trace import PredictOne
from fisher8_jax.families import Family

Loss = Callable[[Any, Array], Array]


class NetworkGradient(NamedTuple):
    """What `network_gradient` returns.

    Attributes:
        value: the mean loss of the batch.
        gradient: the natural gradient of the whole network, a tree like the parameters.
        slope: the derivative of the loss along `gradient` (with what is carried, if anything).
        step_kl: the mean divergence by which a step of minus `gradient` (with what is carried)
            moves the predictions, to second order. Like `slope` it is None where it is not known:
            with weights, and with `Blocks`.
        curvature: the curvature it was computed with.
        moments: the second moments with this batch's gradient, if any were given.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> params, x, y = jnp.ones(()), jnp.ones(3), jnp.zeros(3)
        >>> step = network_gradient(predict_one, params, x, y, damping=1.0)
        >>> print(f"loss falls by {step.slope:.2f} per step, divergence {step.step_kl:.3f}")
        loss falls by 0.50 per step, divergence 0.125
    """

    value: Array
    gradient: ArrayTree
    slope: Array | None
    step_kl: Array | None
    curvature: NetworkCurvature
    moments: SecondMoments | None = None


class _Whitened(NamedTuple):
    """A curvature whose cotangents stay in the whitened coordinates of the solve."""

    curvature: NetworkCurvature

    @property
    def dist(self) -> Family:
        return self.curvature.dist

    @property
    def report(self) -> Array:
        return self.curvature.report

    @property
    def axis_name(self) -> AxisName | None:
        return self.curvature.axis_name

    def solve(self, natural: Array) -> tuple[Array, Array]:
        return self.curvature.solve_whitened(natural)


def network_gradient(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    targets: Array,
    *,
    damping: Numeric = DAMPING,
    loss: Loss | None = None,
    where: Array | None = None,
    weights: Array | None = None,
    axis_name: AxisName | None = None,
    solver: Solver | Literal["auto"] = "auto",
    damping_scale: ArrayTree | None = None,
    moments: SecondMoments | None = None,
    carried: ArrayTree | None = None,
) -> NetworkGradient:
    """The mean loss of a batch and the natural gradient of the whole network.

    Short for `network_curvature`, a loss behind `fisher8_nll` and `jax.grad`. The forward pass is
    shared, and the divergence of the step comes for free, so that a KL radius behind it needs no
    derivative of its own: give it `step_kl`.

    Args:
        predict_one: see `network_curvature`.
        params: see `network_curvature`.
        inputs: see `network_curvature`.
        targets: observed values, the shape of the predictions.
        damping: see `network_curvature`.
        loss: per-element loss `loss(dist, targets)`; by default the exact NLL.
        where: elements that are False count in nothing; their targets may be nan.
        weights: importance of each element, a factor on its loss.
        axis_name: the mapped axis (or axes) that the batch is split over. Value and gradient are
            those of the whole batch, equal in all places.
        solver: see `network_curvature`.
        damping_scale: see `network_curvature`; the gradient has been divided by it.
        moments: running second moments; the Fisher8 gradient of the batch is added, and their
            roots are the `damping_scale`. Hand the result's `moments` to the next call.
        carried: see `network_curvature`; the gradient does not contain it.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> def predict_one(params, x):
        ...     return Gaussian(params[0] + params[1] * x, params[2])
        >>> x, y, params = jnp.arange(4.0), jnp.array([1.0, 3.0, 5.0, 7.0]), jnp.zeros(3)
        >>> step = network_gradient(predict_one, params, x, y, damping=1e-3)
        >>> print((-step.gradient[:2]).round(2))
        [1. 2.]
    """
    problem = pose(predict_one, params, inputs, damping, Mask(where, weights, axis_name))

    def mean_loss(dist: Family, **rule: Any) -> Array:
        if loss is None:
            values = fisher8_nll(dist, targets, where=where, weights=weights, **rule)
        else:
            values = loss(fisher8(dist, where=where, **rule), targets)
            values = weighted_values(values, where, weights)
        return jnp.sum(at_least_float32(values)) / problem.elements

    if moments is not None:
        _check_moments(moments, damping_scale, params)
        unit = jax.grad(lambda dist: mean_loss(dist, axis_name=axis_name))(problem.dist)
        moments = moments.add(_of_outputs(problem, unit, params))
        damping_scale = moments.damping_scale()
    curvature = curve(problem, params, solver, damping_scale, carried)

    def with_report(report: Array) -> NetworkCurvature:
        return dataclasses.replace(curvature, report=report)

    report = vary_over(axis_name, curvature.report)
    if curvature.solver.needs_deltas and problem.is_trainable:
        value, (solution, report) = jax.value_and_grad(
            lambda dist, report: mean_loss(dist, curvature=_Whitened(with_report(report))),
            argnums=(0, 1),
        )(curvature.dist, report)
        whitened = outputs_first(solution.widen().to_vector())
        leaves = pull_back(problem, problem.deltas(), whitened)
        gradient = jax.tree.unflatten(jax.tree.structure(params), leaves)
    else:
        # Formally local parameters, so that no sum over `axis_name` is taken behind our back.
        params, inputs = vary_over(axis_name, (params, inputs))
        predict = jax.vmap(predict_one, (None, 0))
        value, (gradient, report) = jax.value_and_grad(
            lambda params, report: mean_loss(
                predict(params, inputs), curvature=with_report(report)
            ),
            argnums=(0, 1),
        )(params, report)
    if axis_name is not None:
        value, gradient, report = lax.psum((value, gradient, report), axis_name)
    gradient = curvature.divide(gradient)
    slope, step_kl = report if curvature.knows_movement else (None, None)
    return NetworkGradient(value, gradient, slope, step_kl, curvature, moments)


def _of_outputs(problem: Problem, cotangent: Family, params: ArrayTree) -> ArrayTree:
    """The parameters' gradient that belongs to a cotangent of the predictions."""
    natural = problem.dist.natural(cotangent).widen().to_vector()
    leaves = pull_back(
        problem, problem.deltas(), outputs_first(problem.whitening.whiten_natural(natural))
    )
    if problem.axis_name is not None:
        leaves = lax.psum(leaves, problem.axis_name)
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


def _check_moments(
    moments: SecondMoments, damping_scale: ArrayTree | None, params: ArrayTree
) -> None:
    if damping_scale is not None:
        raise ValueError(
            "`moments` make the `damping_scale` of a step: give one of them, not both."
        )
    if not isinstance(moments, SecondMoments):
        raise TypeError(
            f"`moments` must be `SecondMoments`, got {type(moments).__name__}. Begin with "
            "`SecondMoments.zeros(params)`."
        )
    scale_leaves(moments.means, params, "moments")
