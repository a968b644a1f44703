"""The method: natural gradients at the network's output, each of unit L2 norm over the batch.

For a loss `l` of a distribution with parameters `theta`, back-propagation hands the network the
cotangent `g = dl/dtheta`. Fisher8 hands it `F^-1 g` instead, and then divides every parameter's
column by its own L2 norm over the batch:

    n = F^-1 g                  the natural cotangent, one element at a time
    g' = n / ||n||              one norm per parameter and per remaining coordinate

Nothing else of the step changes, so Fisher8 is one `custom_vjp` that is the identity forwards.
It knows no likelihood; it asks the family for `natural` (any loss) or `natural_score` (the NLL).

The result is not the derivative of any function: Hessians and gradient checks by finite
differences have no meaning through it, and a constant factor on the loss has no effect.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.checks import (
    check_axis,
    check_axis_name_is_bound,
    check_mask,
    check_weights,
)
from fisher8_jax._internal.numerics import (
    AxisName,
    Scaled,
    ScaledNorm,
    at_least_float32,
    divide_by_norm,
    l2_norm,
    materialize,
    scale_by,
)
from fisher8_jax._internal.trees import append_axes, array_fields
from fisher8_jax._masking import hide_outside, zero_outside
from fisher8_jax.families import Family

SomeFamily = TypeVar("SomeFamily", bound=Family)
Tree = TypeVar("Tree")

NaturalCotangent = dict[str, Scaled]


class Rule(NamedTuple):
    """How natural cotangents become what is back-propagated; hashable, fixed while tracing."""

    axis: tuple[int, ...]
    axis_name: AxisName | None
    normalize: bool
    gradients_averaged: bool


def fisher8(
    dist: SomeFamily,
    *,
    axis: int | tuple[int, ...] = 0,
    axis_name: AxisName | None = None,
    where: Array | None = None,
    normalize: bool = True,
    gradients_averaged: bool = False,
) -> SomeFamily:
    """Returns `dist` unchanged; whatever loss follows is back-propagated by the Fisher8 rule.

    Put it between the network and the loss. The forward pass is the identity to the bit. The
    backward pass replaces the cotangent of every parameter by the natural one and divides it by its
    L2 norm over the batch, in at least float32.

    Args:
        dist: the predicted distribution, any family.
        axis: the batch axis, or all axes that one norm runs over (batch and space for dense
            outputs). Counted in `dist.batch_shape`; every other coordinate keeps a norm of its own.
        axis_name: the mapped axis (or axes) that the batch is split over under `jax.vmap`,
            `jax.pmap` or `jax.shard_map`. Not needed under `jax.jit` with sharded arrays.
        where: boolean, False for padding and missing targets: these get a zero gradient and do not
            count in the norm. Same rank as the predictions, axes of length 1 broadcast.
        normalize: False keeps the natural gradients as they are (the paper's per-point rule).
        gradients_averaged: True if the code around averages gradients over `axis_name` (`pmean`, or
            a mean of per-example gradients) instead of summing them.

    Returns:
        A distribution equal to `dist`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, fisher8
        >>> targets = jnp.array([3.0, 4.0])
        >>> def loss(mean, log_variance):
        ...     dist = fisher8(Gaussian(mean, log_variance))
        ...     return dist.nll(targets).mean()
        >>> jax.grad(loss)(jnp.zeros(2), jnp.zeros(2))
        Array([-0.6, -0.8], dtype=float32)

    Reference:
        Fisher8, UAI 2026, the batched update rule.
    """
    rule, where = _check_rule(dist, axis, axis_name, where, normalize, gradients_averaged)
    return _identity(rule, vary_over(axis_name, dist), where)


def fisher8_nll(
    dist: Family,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    axis: int | tuple[int, ...] = 0,
    axis_name: AxisName | None = None,
    normalize: bool = True,
    gradients_averaged: bool = False,
) -> Array:
    """The NLL per element, back-propagated by the Fisher8 rule; exact for every finite input.

    The same update as `fisher8(dist).nll(targets)`, computed from the residuals themselves instead
    of from `exp(s) * (exp(-s) * residual)`, so it neither overflows nor vanishes at any predicted
    variance. Targets, mask and weights are constants: no gradient flows to them. Other arguments
    are those of `fisher8`.

    Args:
        dist: the predicted distribution.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient, nor in the norm. Their targets may be nan.
        weights: importance of each element, a factor on its loss.

    Returns:
        `weights * dist.nll(targets)`, one value per element; reduce it by `mean` or `sum`, which
        give the same gradient.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, fisher8_nll
        >>> targets = jnp.array([3.0, 4.0])
        >>> loss = lambda mean: fisher8_nll(Gaussian(mean, jnp.full(2, -200.0)), targets).mean()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([-0.6, -0.8], dtype=float32)
    """
    rule, where = _check_rule(dist, axis, axis_name, where, normalize, gradients_averaged)
    targets = dist.check_targets(targets)
    if weights is not None:
        weights = check_weights("weights", weights, dist.batch_shape)
    return _fused_nll(rule, vary_over(axis_name, dist), targets, where, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _identity(rule: Rule, dist: SomeFamily, where: Array | None) -> SomeFamily:
    return dist


def _identity_forward(rule, dist, where):
    return dist, (what_natural_needs(dist), where)


def _identity_backward(rule, residuals, cotangent):
    dist, where = residuals
    return apply_rule(rule, dist, natural_cotangent(dist, cotangent, where)), None


_identity.defvjp(_identity_forward, _identity_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused_nll(rule, dist, targets, where, weights):
    dist, targets = hide_outside(dist, targets, where)
    return weighted_values(dist.nll(targets), where, weights)


def _fused_nll_forward(rule, dist, targets, where, weights):
    values = _fused_nll(rule, dist, targets, where, weights)
    return values, (dist, targets, where, weights)


def _fused_nll_backward(rule, residuals, cotangent):
    dist, targets, where, weights = residuals
    natural = natural_nll_cotangent(dist, targets, cotangent, where, weights)
    return apply_rule(rule, dist, natural), None, None, None


_fused_nll.defvjp(_fused_nll_forward, _fused_nll_backward)


def natural_cotangent(
    dist: SomeFamily, cotangent: SomeFamily, where: Array | None
) -> NaturalCotangent:
    """`F^-1 cotangent`, zero outside `where` even if the cotangent there is not finite."""
    masked = jax.tree.map(lambda leaf: zero_outside(leaf, where), cotangent)
    natural = dist.natural(masked)
    return {
        name: Scaled(zero_outside(at_least_float32(getattr(natural, name)), where))
        for name in array_fields(natural)
    }


def natural_nll_cotangent(
    dist: Family, targets: Array, factor: Array, where: Array | None, weights: Array | None
) -> NaturalCotangent:
    """`F^-1` times the gradient of `sum(factor * weights * nll)`, from the residuals."""
    dist, targets = hide_outside(dist, targets, where)
    # One after the other: a weight times a loss scale may leave the range before the score is met.
    factors = [at_least_float32(x) for x in (factor, weights) if x is not None]

    def scale(score: Scaled) -> Scaled:
        for x in factors:
            score = scale_by(score, append_axes(zero_outside(x, where), score.value.ndim))
        log_scale = score.log_scale
        return Scaled(
            zero_outside(score.value, where),
            None if log_scale is None else zero_outside(log_scale, where),
        )

    return {name: scale(score) for name, score in dist.natural_score(targets).items()}


def value_and_natural(
    dist: Family,
    targets: Array,
    factor: Array,
    loss: Callable[[Any, Array], Array] | None,
    where: Array | None,
    weights: Array | None,
) -> tuple[Array, NaturalCotangent]:
    """Values of a loss in at least float32, and the natural cotangent of `sum(factor * values)`.

    Without a `loss` it is the NLL, and the cotangent comes from the residuals.
    """
    if loss is None:
        targets = dist.check_targets(targets)
        values = weighted_values(dist.nll(targets), where, weights)
        natural = natural_nll_cotangent(dist, targets, factor, where, weights)
        return at_least_float32(values), natural
    values, pull_back = jax.vjp(lambda d: weighted_values(loss(d, targets), where, weights), dist)
    (cotangent,) = pull_back(factor.astype(values.dtype))
    return at_least_float32(values), natural_cotangent(dist, cotangent, where)


def weighted_values(values: Array, where: Array | None, weights: Array | None) -> Array:
    """`weights * values`, and 0 outside `where`."""
    if weights is not None:
        values = values * weights.astype(values.dtype)
    return zero_outside(values, where)


def norms_over_batch(rule: Rule, dist: Family, natural: NaturalCotangent) -> dict[str, ScaledNorm]:
    """One L2 norm per parameter and remaining coordinate, or one for all that share it."""

    def axes(name: str, ndim: int) -> tuple[int, ...]:
        if name not in dist.shared_norms:
            return rule.axis
        return (*rule.axis, *range(len(dist.batch_shape), ndim))

    return {
        name: l2_norm(x, axes(name, x.value.ndim), rule.axis_name) for name, x in natural.items()
    }


def apply_rule(
    rule: Rule,
    dist: SomeFamily,
    natural: NaturalCotangent,
    norms: dict[str, ScaledNorm] | None = None,
) -> SomeFamily:
    """The cotangent to back-propagate, in the dtypes of `dist`; `norms` replace the batch's own."""
    if not rule.normalize:
        result = {name: materialize(x) for name, x in natural.items()}
    else:
        norms = norms_over_batch(rule, dist, natural) if norms is None else norms
        result = {name: divide_by_norm(x, norms[name]) for name, x in natural.items()}
    if rule.gradients_averaged:
        # A sum of unit-norm parts is right; undo the division by the number of parts.
        parts = lax.psum(1, rule.axis_name)
        result = {name: parts * x for name, x in result.items()}
    leaves = {name: x.astype(getattr(dist, name).dtype) for name, x in result.items()}
    return jax.tree.unflatten(jax.tree.structure(dist), [leaves[n] for n in array_fields(dist)])


def what_natural_needs(dist: SomeFamily) -> SomeFamily:
    """`dist` without the arrays that its Fisher information does not depend on.

    They would be kept from the forward to the backward pass for nothing; their dtype stays.
    """
    if dist.fisher_depends_on is None:
        return dist
    return dataclasses.replace(
        dist,
        **{
            name: jnp.zeros((), getattr(dist, name).dtype)
            for name in array_fields(dist)
            if name not in dist.fisher_depends_on
        },
    )


def check_family(name: str, dist: SomeFamily) -> SomeFamily:
    """Returns `dist`, or says that it must be a distribution."""
    if not isinstance(dist, Family):
        raise TypeError(
            f"{name} must be a distribution such as `Gaussian(mean, log_variance)`, "
            f"got {type(dist).__name__}."
        )
    return dist


def _check_rule(
    dist: Family,
    axis: int | tuple[int, ...],
    axis_name: AxisName | None,
    where: Array | None,
    normalize: bool,
    gradients_averaged: bool,
) -> tuple[Rule, Array | None]:
    shape = check_family("`dist`", dist).batch_shape
    if gradients_averaged and axis_name is None:
        raise ValueError(
            "`gradients_averaged=True` undoes an average over `axis_name`, but none was given. "
            "Under plain `jax.jit` gradients are not averaged: leave it out."
        )
    if axis_name is not None:
        check_axis_name_is_bound(axis_name)
    axes = () if not normalize else check_axis(axis, shape, axis_name=axis_name)
    mask = None if where is None else check_mask("where", where, shape)
    return Rule(axes, axis_name, normalize, gradients_averaged), mask


def vary_over(axis_name: AxisName | None, tree: Tree) -> Tree:
    """`tree`, every leaf of which depends formally on its index along `axis_name`.

    A parameter that all devices share (one global log-variance) would otherwise receive a cotangent
    that was summed over the axis before this function sees it. XLA removes the selection.
    """
    if axis_name is None:
        return tree
    here = lax.axis_index(axis_name) >= 0
    return jax.tree.map(lambda leaf: jnp.where(here, leaf, leaf), tree)
