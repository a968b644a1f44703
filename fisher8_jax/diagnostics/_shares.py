"""Which points of a batch hold the gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_host_array, check_mask, check_number
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
    check_family("`dist`", dist)
    check_has_batch(dist.batch_shape)
    return _top_shares(dist, dist.check_targets(targets), where, share=share, natural=natural)


@functools.partial(jax.jit, static_argnames=("share", "natural"))
def _top_shares(
    dist: Family, targets: Array, where: Array | None, *, share: float, natural: bool
) -> dict[str, Array]:
    gradients, counted = _gradients(dist, targets, natural, where)
    number = jnp.ceil(share * counted.sum()).astype(int)
    return {name: _top_share(_log_norms(g), number) for name, g in gradients.items()}


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
