"""Loss, parameter-space natural gradient and the divergence of its step, in one call."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array, lax

from fisher8_jax._fisher8 import NaturalCotangent, value_and_natural, vary_over
from fisher8_jax._internal.checks import check_number
from fisher8_jax._internal.numerics import AxisName, all_finite, materialize
from fisher8_jax._internal.sharding import place_like, with_auto_axes
from fisher8_jax.curvature._cost import Choice, check_solver
from fisher8_jax.curvature._gram import pull_back
from fisher8_jax.curvature._network_curvature import DAMPING, NetworkCurvature, curve
from fisher8_jax.curvature._problem import Mask, Problem, outputs_first, pose
from fisher8_jax.curvature._trace import PredictOne, check_function_of_one_example

Loss = Callable[[Any, Array], Array]


class GradientState(NamedTuple):
    """What `network_gradient` remembers from step to step; begin with `GradientState.zeros`.

    A running sum of natural gradients overshoots, since each of them goes the whole way. Here the
    solve knows the momentum and computes only what is missing to it. The sum is the exact solution
    of the damped problem whose damping pulls to the momentum instead of to zero.

    Attributes:
        momentum: the gradient of the last step, a tree like the parameters.
        decay: how much of it the next step begins with.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> from fisher8_jax.curvature import GradientState
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> params, x, y = jnp.ones(()), jnp.ones(3), jnp.zeros(3)
        >>> state = GradientState.zeros(params, momentum=0.9)
        >>> for _ in range(2):  # 1/2 at first: damping 1 stops half-way
        ...     step = network_gradient(predict_one, params, x, y, damping=1.0, state=state)
        ...     state = step.state
        >>> print(f"{step.gradient:.3f}")
        0.725

    Reference:
        Goldshlager, Abrahamsen and Lin, A Kaczmarz-inspired approach to accelerate the optimization
        of neural network wavefunctions (SPRING), 2024.
    """

    momentum: ArrayTree
    decay: Numeric

    @classmethod
    def zeros(cls, params: ArrayTree, *, momentum: Numeric) -> Self:
        """Before the first step.

        Args:
            params: the parameters.
            momentum: how much of a step the next one begins with, below 1.
        """
        check_number("momentum", momentum, at_least=0, below=1)
        return cls(jax.tree.map(jnp.zeros_like, params), jnp.asarray(momentum))

    def check(self, params: ArrayTree) -> Self:
        """Returns the state, or says why it does not belong to `params`."""
        if not isinstance(self, GradientState):
            raise TypeError(
                f"`state` must be a `GradientState`, got {type(self).__name__}. Begin with "
                "`GradientState.zeros(params, ...)` and hand on the `state` of every step."
            )
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (self.momentum, params)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "`state.momentum` must be a tree like `params`, with the same shapes, got "
                f"{shapes[0]} for {shapes[1]}. Begin with `GradientState.zeros(params, "
                "momentum=...)`."
            )
        return self

    def initial_step(self) -> ArrayTree:
        """The momentum that the next step begins with."""
        return jax.tree.map(lambda leaf: (self.decay * leaf).astype(leaf.dtype), self.momentum)

    def remember(self, gradient: ArrayTree) -> Self:
        """With `gradient` as the momentum; one that is not finite is forgotten."""
        finite = all_finite(gradient)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), gradient, self.momentum)
        return self._replace(momentum=kept)


class NetworkGradient(NamedTuple):
    """What `network_gradient` returns.

    Attributes:
        value: the mean loss of the batch.
        gradient: the parameter-space natural gradient, momentum included; a tree like the
            parameters, zeros for leaves that are not floating-point.
        slope: the derivative of the loss along `gradient`.
        step_kl: the mean divergence by which a step of minus `gradient` moves the predictions, to
            second order. Like `slope` it is None with weights. `Blocks` take one more forward-mode
            derivative for both.
        residual: what the solution leaves of the linear system, relative to its right-hand side:
            the relative error of the gradient, about. Rounding with `Direct`, up to `tolerance`
            with `ConjugateGradients`, None with `Blocks`.
        curvature: the curvature it was computed with.
        state: the state to hand to the next call, None if none was given.

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
    residual: Array | None
    curvature: NetworkCurvature
    state: GradientState | None = None


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
    solver: Choice = "auto",
    state: GradientState | None = None,
) -> NetworkGradient:
    """The mean loss of a batch and its natural gradient in parameter space.

    `network_curvature`, a loss behind `precondition` and `jax.grad` in one: the forward pass is
    shared, the gradient follows from what the Gram matrix needs anyway, and the divergence of the
    step comes for free, so that a KL radius behind it needs no derivative of its own: give it
    `step_kl`. Other arguments are those of `network_curvature`.

    Args:
        targets: observed values, the shape of the predictions.
        loss: per-element loss `loss(dist, targets)`; by default the NLL, exact for every finite
            input.
        where: elements that are False count in nothing; their targets may be nan.
        weights: importance of each element, a factor on its loss.
        axis_name: the mapped axis (or axes) that the batch is split over. Value and gradient are
            those of the whole batch, equal on all devices.
        state: momentum, see `GradientState`; hand the result's `state` to the next call.

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
    check_solver(solver)
    check_function_of_one_example(predict_one, params)

    def compute(batch: _Batch) -> NetworkGradient:
        return _network_gradient(predict_one, loss, axis_name, solver, batch)

    batch = _Batch(params, inputs, targets, damping, Mask(where, weights), state)
    step = with_auto_axes(compute, batch)
    return step._replace(gradient=place_like(step.gradient, params))


class _Batch(NamedTuple):
    """The arrays that a step is computed from."""

    params: ArrayTree
    inputs: ArrayTree
    targets: Array
    damping: Numeric
    mask: Mask
    state: GradientState | None


def _network_gradient(
    predict_one: PredictOne,
    loss: Loss | None,
    axis_name: AxisName | None,
    solver: Choice,
    batch: _Batch,
) -> NetworkGradient:
    params, inputs, targets, damping, mask, state = batch
    problem = pose(predict_one, params, inputs, damping=damping, mask=mask, axis_name=axis_name)
    initial = moved = None
    if state is not None:
        state = jax.tree.map(lax.stop_gradient, GradientState.check(state, params))
        initial = state.initial_step()
        moved = problem.movement(vary_over(axis_name, initial))
    value, natural = _value_and_natural(problem, loss, targets)
    rows, curvature = curve(problem, solver)
    solution = curvature.solve(_vectors(problem, natural), moved)
    outputs = solution.whitened
    leaves = pull_back(problem, outputs, rows) if rows else problem.pull(outputs)
    total = value, leaves, solution.slope, solution.step_kl
    if axis_name is not None:
        total = lax.psum(total, axis_name)
    value, leaves, slope, step_kl = total
    gradient = jax.tree.unflatten(jax.tree.structure(params), leaves)
    if initial is not None:
        gradient = jax.tree.map(jnp.add, gradient, initial)
    if step_kl is None and not problem.whitening.is_weighted:
        slope, step_kl = _movement(problem, natural, gradient)
    new = None if state is None else state.remember(gradient)
    return NetworkGradient(value, gradient, slope, step_kl, solution.residual, curvature, new)


def _movement(
    problem: Problem, natural: NaturalCotangent, gradient: ArrayTree
) -> tuple[Array, Array]:
    """Slope and divergence of a step by one forward-mode derivative."""
    moved = problem.movement(vary_over(problem.axis_name, gradient))
    whitened = outputs_first(problem.whitening.whiten_natural(_vectors(problem, natural)))
    parts = jnp.sum(whitened * moved), 0.5 * jnp.sum(jnp.square(moved)) / problem.elements
    return parts if problem.axis_name is None else lax.psum(parts, problem.axis_name)


def _value_and_natural(
    problem: Problem, loss: Loss | None, targets: Array
) -> tuple[Array, NaturalCotangent]:
    """The mean loss, this device's part of it, and its natural cotangent."""
    each = jnp.broadcast_to(1 / problem.elements, problem.dist.batch_shape)
    values, natural = value_and_natural(problem.dist, targets, each, loss, *problem.mask)
    value = jnp.sum(values) / problem.elements
    if problem.mask.weights is not None:  # as not finite as the gradient
        value = jnp.where(jnp.any(problem.mask.weights < 0), jnp.nan, value)
    return value, natural


def _vectors(problem: Problem, natural: NaturalCotangent) -> Array:
    """A natural cotangent as one vector an element, `batch_shape + (p,)`."""
    plain = {name: materialize(x) for name, x in natural.items()}
    return dataclasses.replace(problem.dist, **plain).to_vector()
