"""Who pulls on the network: readouts of the gradients at its outputs and of saturated variances.

Two kinds of gradient are meant throughout. The plain one is the derivative of the NLL with respect
to the outputs, which is what ordinary training back-propagates; it is divided by the predicted
variance, so a few confident points can hold nearly all of it. The natural one, `natural=True`, is
what Fisher8 back-propagates before its norm over the batch.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.axes import append_axes
from fisher8_jax._internal.checks import check_mask, check_number
from fisher8_jax._internal.numerics import Scaled, at_least_float32, l2_norm
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.diagnostics._checks import check_has_batch
from fisher8_jax.families import Family

_LOCATIONS = ("mean", "location", "log_mean")


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


def mean_to_scale_ratio(
    dist: Family,
    targets: Array,
    *,
    location: str | None = None,
    natural: bool = False,
    where: Array | None = None,
) -> Array:
    """The gradient of the location over the gradient of everything else, as L2 norms.

        ||d nll / d mean|| / ||d nll / d log_variance||

    A ratio far from 1 means that plain training moves one head and leaves the other behind.

    Args:
        dist: the predictions.
        targets: observed values.
        location: name of the field that counts as the location; by default `mean`, `location` or
            `log_mean`, whichever the family has.
        natural: compare natural gradients instead of plain ones.
        where: boolean, False for padding and missing targets.

    Returns:
        One number.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(mean=jnp.zeros(1), log_variance=jnp.log(jnp.full(1, 0.01)))
        >>> round(float(mean_to_scale_ratio(dist, jnp.full(1, 0.2))), 3)
        13.333
    """
    _check(dist)
    field = _location_field(dist, location)
    targets = dist.check_targets(targets)
    return _ratio(dist, targets, where, location=field, natural=natural)


def _location_field(dist: Family, location: str | None) -> str:
    fields = array_fields(dist)
    candidates = _LOCATIONS if location is None else (location,)
    found = [name for name in candidates if name in fields]
    if not found:
        raise ValueError(
            f"`location` must name the field of {type(dist).__name__} that holds the location, "
            f"one of {fields}, got {location!r}."
        )
    if len(fields) < 2:
        raise ValueError(
            f"`dist` must have a scale next to its location, got {type(dist).__name__} with the "
            f"one field {fields[0]!r}."
        )
    return found[0]


@functools.partial(jax.jit, static_argnames=("location", "natural"))
def _ratio(
    dist: Family, targets: Array, where: Array | None, *, location: str, natural: bool
) -> Array:
    gradients, _ = _gradients(dist, targets, natural, where)
    log_norms = {name: _log_norms(gradient) for name, gradient in gradients.items()}
    of_location = _log_total(log_norms.pop(location))
    return jnp.exp(of_location - _log_total(jnp.concatenate(list(log_norms.values()))))


def saturated_share(
    dist: Family,
    *,
    lower: float | None = None,
    upper: float | None = None,
    margin: float = 0.01,
    where: Array | None = None,
) -> Array:
    """The share of predictions whose log-variance has reached a bound of its head.

        mean of (log_variance <= lower + margin  or  log_variance >= upper - margin)

    Args:
        dist: the predictions, any family with a finite variance.
        lower: smallest log-variance that the head can give, for instance `log(min_variance)`.
        upper: largest log-variance that the head can give.
        margin: distance from a bound that still counts, because a soft bound is never reached.
        where: boolean, False for padding.

    Returns:
        One number in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> log_variance = jnp.clip(jnp.array([-9.0, -3.0, 0.0, 4.0]), -5.0, 5.0)
        >>> saturated_share(Gaussian(jnp.zeros(4), log_variance), lower=-5.0, upper=5.0)
        Array(0.25, dtype=float32)
    """
    check_family("`dist`", dist)
    if lower is None and upper is None:
        raise ValueError(
            "`lower` and `upper` are both missing. Pass the log-variance at which the head is "
            "clipped, for instance `lower=math.log(min_variance)`."
        )
    log_variance = at_least_float32(2 * dist.log_std)
    is_low = log_variance <= (-math.inf if lower is None else lower + margin)
    is_high = log_variance >= (math.inf if upper is None else upper - margin)
    mask = None if where is None else check_mask("where", where, log_variance.shape)
    return jnp.mean(is_low | is_high, where=mask, dtype=log_variance.dtype)


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


def _log_total(log_norms: Array) -> Array:
    """The logarithm of the L2 norm over all points."""
    return 0.5 * jax.nn.logsumexp(2 * log_norms)


def _top_share(log_norms: Array, number: Array) -> Array:
    """The share held by the `number` largest, safe from overflow."""
    largest_first = jnp.sort(jnp.exp(log_norms - log_norms.max()), descending=True)
    is_top = jnp.arange(log_norms.size) < number
    return jnp.sum(jnp.where(is_top, largest_first, 0)) / jnp.sum(largest_first)
