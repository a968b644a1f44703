"""Shares of a batch: which points hold the gradient, which predictions and units are constant."""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_floating, check_host_array, check_mask, check_number
from fisher8_jax._internal.numerics import Scaled, at_least_float32, l2_norm
from fisher8_jax._internal.trees import append_axes, array_fields
from fisher8_jax.families import Family


def check_has_batch(batch_shape: tuple[int, ...], *, may_be_empty: bool = False) -> None:
    """Rejects a single prediction where a batch is needed."""
    if not batch_shape or (batch_shape[0] == 0 and not may_be_empty):
        raise ValueError(
            "`dist` must hold a batch of predictions along its first axis, got batch shape "
            f"{batch_shape}. Predict all points at once, for instance with `jax.vmap`."
        )


def check_inputs(inputs: chex.Array) -> Array:
    """Returns `inputs` as a floating-point array with at least one point along axis 0."""
    inputs = check_floating("inputs", inputs)
    if inputs.ndim == 0 or inputs.shape[0] == 0:
        raise ValueError(
            f"`inputs` must hold one point per row, got shape {inputs.shape}. "
            "Pass an array of shape (points,) or (points, ...) with at least one point."
        )
    return inputs


def check_same_length(dist: Family, inputs: Array) -> None:
    """Says that predictions and inputs must be of the same points."""
    check_has_batch(dist.batch_shape)
    if dist.batch_shape[0] != inputs.shape[0]:
        raise ValueError(
            f"`dist` must hold one prediction per input: its batch shape is {dist.batch_shape}, "
            f"but there are {inputs.shape[0]} inputs. Predict at the same points, in order."
        )


def check_rows(inputs: ArrayLike, number: int) -> np.ndarray:
    """Returns `inputs` as a table in double precision, one row for each of `number` points."""
    values = check_host_array("inputs", inputs).astype(np.float64)
    if values.ndim == 0 or len(values) != number:
        raise ValueError(
            f"`inputs` must hold one row per prediction, {number} of them, got shape "
            f"{values.shape}."
        )
    return values.reshape(number, -1)


def top_gradient_share(
    dist: Family,
    targets: Array,
    *,
    share: float = 0.01,
    natural: bool = False,
    where: Array | None = None,
) -> dict[str, Array]:
    """The part of the gradient held by the points with the largest gradients.

        sum of norm(g_i) over the largest `share` of points / sum of norm(g_i) over all points

    A value near `share` means that all points pull alike. For a calibrated Gaussian of constant
    variance the top 1 % hold 3.6 % of the mean's gradient. Near 1, all other points are starved.

    Args:
        dist: the predictions, points along the first axis; the gradient of a point with several
            targets is measured by its L2 norm.
        targets: observed values.
        share: which part of the points counts as the top; at least one point.
        natural: measure natural gradients instead of plain ones.
        where: boolean, False for padding and missing targets.

    Returns:
        One number per field of the distribution; nan if no point has a gradient.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(100), jnp.zeros(100).at[0].set(-10.0))
        >>> round(float(top_gradient_share(dist, jnp.ones(100))["mean"]), 3)
        0.996
        >>> round(float(top_gradient_share(dist, jnp.ones(100), natural=True)["mean"]), 3)
        0.01

    Reference:
        Seitzer et al., ICLR 2022, on the points that training neglects.
    """
    check_number("share", share, above=0, at_most=1)
    _check(dist)
    return _top_shares(dist, dist.check_targets(targets), where, share=share, natural=natural)


@functools.partial(jax.jit, static_argnames=("share", "natural"))
def _top_shares(
    dist: Family, targets: Array, where: Array | None, *, share: float, natural: bool
) -> dict[str, Array]:
    gradients, counted = _gradients(dist, targets, natural, where)
    number = jnp.ceil(share * counted.sum()).astype(int)
    return {name: _top_share(_log_norms(g), number) for name, g in gradients.items()}


def _check(dist: Family) -> None:
    check_family("`dist`", dist)
    check_has_batch(dist.batch_shape)


def _gradients(
    dist: Family, targets: Array, natural: bool, where: Array | None
) -> tuple[dict[str, Scaled], Array]:
    """The gradient of every field, zero outside `where`, and which points are counted."""
    dist = jax.tree.map(at_least_float32, dist)
    if natural:
        gradients = dist.natural_score(targets)
    else:
        plain = jax.grad(lambda d: d.nll(targets).sum())(dist)
        gradients = {name: Scaled(getattr(plain, name)) for name in array_fields(plain)}
    shape = dist.batch_shape
    mask = jnp.ones(shape, bool) if where is None else check_mask("where", where, shape)

    def zero_outside(x: Array) -> Array:
        return jnp.where(append_axes(mask, x.ndim), x, 0)

    return jax.tree.map(zero_outside, gradients), mask.reshape(shape[0], -1).any(axis=1)


def _log_norms(gradient: Scaled) -> Array:
    """The logarithm of every point's L2 norm."""
    norm = l2_norm(gradient, axis=tuple(range(1, gradient.value.ndim)))
    return (norm.log_max + 0.5 * jnp.log(norm.sum_sq)).reshape(-1)


def _top_share(log_norms: Array, number: Array) -> Array:
    """The share held by the `number` largest, safe from overflow."""
    largest_first = jnp.sort(jnp.exp(log_norms - log_norms.max()), descending=True)
    is_top = jnp.arange(log_norms.size) < number
    return jnp.sum(jnp.where(is_top, largest_first, 0)) / jnp.sum(largest_first)


def constant_share(
    predict: Callable[[Array], Family],
    inputs: Array,
    *,
    tolerance: float = 1e-8,
    key: Array | None = None,
) -> Array:
    """The share of a batch whose prediction no longer depends on the input.

    Every input is moved in a random direction, each feature in proportion to its spread over the
    batch. A prediction counts as constant if that changes it by less than `tolerance` nats to
    second order. 0 is healthy; 1 means that the network has collapsed to one answer.

    Args:
        predict: maps inputs of shape (points, ...) to a distribution of batch shape (points, ...).
        inputs: at least two different points.
        tolerance: nats, half of `fisher_norm_sq` of the change.
        key: of the random direction.

    Returns:
        One number in [0, 1]; works under `jit`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> x = jnp.linspace(-1.0, 1.0, 4)
        >>> constant_share(lambda x: Gaussian(jnp.maximum(x, 0.0), jnp.zeros(4)), x)
        Array(0.5, dtype=float32)
    """
    inputs = check_inputs(inputs)
    key = jax.random.key(0) if key is None else key
    spread = jnp.std(at_least_float32(inputs), axis=0, keepdims=True)
    direction = spread * jax.random.normal(key, inputs.shape, spread.dtype)
    dist, change = jax.jvp(predict, (inputs,), (direction.astype(inputs.dtype),))
    check_same_length(dist, inputs)
    moved = 0.5 * dist.widen().fisher_norm_sq(change.widen())
    is_still = jnp.all(moved.reshape(inputs.shape[0], -1) < tolerance, axis=1)
    return jnp.mean(is_still, dtype=spread.dtype)
