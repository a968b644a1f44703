"""The full-batch Fisher8 gradient from micro-batches that fit in memory.

Fisher8 divides by norms over the whole batch, so gradients of normalised micro-batches do not add
up to it. But natural cotangents depend on the network's outputs alone. Hence two passes:

1. forward only: predict each micro-batch, combine the norms of its natural cotangents;
2. backward: predict again, divide by those norms, back-propagate, add up the gradients.

The result equals the gradient of the full batch up to rounding, at the memory of one micro-batch.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._fisher8 import (
    NaturalCotangent,
    Rule,
    apply_rule,
    check_family,
    norms_over_batch,
    value_and_natural,
    vary_over,
)
from fisher8_jax._internal.checks import (
    check_axis,
    check_axis_name_is_bound,
    check_count,
    check_mask,
    check_weights,
)
from fisher8_jax._internal.numerics import (
    AxisName,
    ScaledNorm,
    at_least_float32,
    combine_norms,
    combine_norms_over,
)
from fisher8_jax.families import Family

Params: TypeAlias = chex.ArrayTree
Inputs: TypeAlias = chex.ArrayTree
Loss = Callable[[Family, Array], Array]


class MicrobatchedValueAndGrad(Protocol):
    """What `microbatched_value_and_grad` returns."""

    def __call__(
        self,
        params: Params,
        inputs: Inputs,
        targets: Array,
        *,
        where: Array | None = None,
        weights: Array | None = None,
    ) -> tuple[Array, Params]: ...


class _Batch(NamedTuple):
    """One micro-batch, or all of them stacked along a new first axis."""

    inputs: Inputs
    targets: Array
    where: Array
    weights: Array | None


def microbatched_value_and_grad(
    predict: Callable[[Params, Inputs], Family],
    *,
    microbatch_size: int,
    loss: Loss | None = None,
    axis: int | tuple[int, ...] = 0,
    axis_name: AxisName | None = None,
) -> MicrobatchedValueAndGrad:
    """Makes a function that computes loss and Fisher8 gradient one micro-batch at a time.

    Args:
        predict: `predict(params, inputs) -> distribution`, the network without `fisher8`. Rows must
            not influence each other (no batch normalisation in training mode).
        microbatch_size: rows per forward and backward pass. It need not divide the batch.
        loss: per-element loss `loss(dist, targets)`; by default the exact NLL of `fisher8_nll`.
        axis: the axes that one norm runs over, as in `fisher8`; must contain the batch axis 0.
        axis_name: mapped axis that the batch is also split over. Gradients are of the local rows;
            add them up over it by `psum`.

    Returns:
        A function `(params, inputs, targets, *, where=None, weights=None) -> (value, gradient)`.
        `inputs` is a pytree whose arrays share the first axis of `targets`. The value is the mean
        of `weights * loss` over the elements inside `where` (of the local rows).

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, microbatched_value_and_grad
        >>> def predict(params, inputs):
        ...     return Gaussian(params["slope"] * inputs, jnp.zeros_like(inputs))
        >>> value_and_grad = microbatched_value_and_grad(predict, microbatch_size=2)
        >>> x = jnp.arange(5.0)
        >>> value, gradient = value_and_grad({"slope": jnp.array(1.0)}, x, 2 * x)
        >>> round(float(gradient["slope"]), 4)  # -||x|| = -sqrt(30)
        -5.4772
    """
    microbatch_size = check_count("microbatch_size", microbatch_size)

    def value_and_grad(
        params: Params,
        inputs: Inputs,
        targets: Array,
        *,
        where: Array | None = None,
        weights: Array | None = None,
    ) -> tuple[Array, Params]:
        if axis_name is not None:
            check_axis_name_is_bound(axis_name)
        shape = _predicted_batch_shape(predict, params, inputs, targets)
        axes = check_axis(axis, shape, axis_name=axis_name)
        if 0 not in axes:
            raise ValueError(f"`axis` must contain the batch axis 0, got {axis}.")
        job = _Job(predict, loss, Rule(axes, None, normalize=True, gradients_averaged=False))
        batches = _split(_fill(inputs, targets, where, weights, shape), microbatch_size)
        norms = _combined_norms(job, params, batches, axis_name)
        return _value_and_summed_gradient(job, params, batches, norms, axis_name)

    return value_and_grad


class _Job(NamedTuple):
    """What is computed for every micro-batch."""

    predict: Callable[[Params, Inputs], Family]
    loss: Loss | None
    rule: Rule

    def natural(self, dist: Family, batch: _Batch) -> tuple[Array, NaturalCotangent]:
        """The values of the loss, and the natural cotangent of their weighted sum."""
        ones = jnp.ones(dist.batch_shape, jnp.float32)
        where, weights = batch.where, batch.weights
        return value_and_natural(dist, batch.targets, ones, self.loss, where, weights)


def _combined_norms(
    job: _Job, params: Params, batches: _Batch, axis_name: AxisName | None
) -> dict[str, ScaledNorm]:
    """The first pass: norms over all micro-batches and all devices along `axis_name`."""

    def norms_of(batch: _Batch) -> dict[str, ScaledNorm]:
        dist = job.predict(params, batch.inputs)
        _, natural = job.natural(dist, batch)
        return norms_over_batch(job.rule, dist, natural)

    def add(norms: dict[str, ScaledNorm], batch: _Batch) -> tuple[dict[str, ScaledNorm], None]:
        new = norms_of(batch)
        return {name: combine_norms(norms[name], new[name]) for name in norms}, None

    shapes = jax.eval_shape(norms_of, jax.tree.map(lambda leaf: leaf[0], batches))
    empty = {
        name: ScaledNorm(
            jnp.full(n.log_max.shape, -jnp.inf, n.log_max.dtype),
            jnp.zeros(n.sum_sq.shape, n.sum_sq.dtype),
        )
        for name, n in shapes.items()
    }
    norms, _ = lax.scan(add, vary_over(axis_name, empty), batches)
    if axis_name is None:
        return norms
    return {name: combine_norms_over(axis_name, norm) for name, norm in norms.items()}


def _value_and_summed_gradient(
    job: _Job,
    params: Params,
    batches: _Batch,
    norms: dict[str, ScaledNorm],
    axis_name: AxisName | None,
) -> tuple[Array, Params]:
    """The second pass: back-propagates every micro-batch with the norms of the whole batch."""
    # Formally local parameters, so that no sum over `axis_name` is taken behind the user's back.
    params = vary_over(axis_name, params)

    def add(carry: tuple[Array, Params], batch: _Batch) -> tuple[tuple[Array, Params], None]:
        total, gradient = carry
        dist, pull_back = jax.vjp(lambda p: job.predict(p, batch.inputs), params)
        values, natural = job.natural(dist, batch)
        (new,) = pull_back(apply_rule(job.rule, dist, natural, norms))
        gradient = jax.tree.map(lambda g, x: g + x.astype(g.dtype), gradient, new)
        return (total + jnp.sum(values).astype(total.dtype), gradient), None

    value_dtype = at_least_float32(batches.targets[:0]).dtype
    zeros = jax.tree.map(lambda p: jnp.zeros_like(at_least_float32(p)), params)
    start = vary_over(axis_name, (jnp.zeros((), value_dtype), zeros))
    (total, gradient), _ = lax.scan(add, start, batches)
    count = jnp.maximum(jnp.sum(batches.where), 1).astype(total.dtype)
    return total / count, jax.tree.map(lambda g, p: g.astype(p.dtype), gradient, params)


def _predicted_batch_shape(
    predict: Callable[[Params, Inputs], Family], params: Params, inputs: Inputs, targets: Array
) -> tuple[int, ...]:
    """Traces `predict` on the whole batch, computing nothing, to check all shapes."""
    rows = jnp.shape(targets)[:1]
    if rows in ((), (0,)):
        raise ValueError(f"`targets` must have at least one row, got shape {jnp.shape(targets)}.")
    for leaf in jax.tree.leaves(inputs):
        if jnp.shape(leaf)[:1] != rows:
            raise ValueError(
                f"Every array of `inputs` must have {rows[0]} rows like `targets`, "
                f"got one of shape {jnp.shape(leaf)}."
            )
    shape: tuple[int, ...] = ()

    def trace(params: Params, inputs: Inputs, targets: Array) -> None:
        nonlocal shape
        dist = check_family("the result of `predict`", predict(params, inputs))
        dist.check_targets(targets)
        shape = dist.batch_shape

    jax.eval_shape(trace, params, inputs, targets)
    return shape


def _fill(
    inputs: Inputs,
    targets: Array,
    where: Array | None,
    weights: Array | None,
    shape: tuple[int, ...],
) -> _Batch:
    """The whole batch, its mask and weights expanded to `shape`."""
    mask = jnp.ones(shape, bool) if where is None else check_mask("where", where, shape)
    if weights is not None:
        weights = check_weights("weights", weights, shape)
    return _Batch(inputs, jnp.asarray(targets), mask, weights)


def _split(batch: _Batch, size: int) -> _Batch:
    """Pads the rows to a multiple of `size` and stacks micro-batches along a new first axis."""
    rows = batch.targets.shape[0]
    count = math.ceil(rows / size)

    def split(leaf: Array, mode: str = "edge") -> Array:
        leaf = jnp.asarray(leaf)
        widths = [(0, count * size - rows)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths, mode=mode).reshape(count, size, *leaf.shape[1:])

    # Padding repeats the last row, since a network may not be finite at an invented input; only the
    # mask is padded by zeros.
    return jax.tree.map(split, batch)._replace(where=split(batch.where, "constant"))
