"""Targets known only as "at most", "at least" or "between": the likelihood of an interval.

    loss = censored_nll(fisher8(dist), lower, upper).mean()

The natural gradient uses the Fisher information of the uncensored target. It is the larger of the
two (an interval tells less than a value), so steps are a little shorter than those of the censored
information, which would depend on a censoring rule that is usually not known for future targets.
"""

import functools
import math

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr

from fisher8_jax._internal.checks import check_mask, check_targets
from fisher8_jax._internal.numerics import multiply_by_exp
from fisher8_jax.families._contract import Family
from fisher8_jax.families._gaussian import Gaussian
from fisher8_jax.families._laplace import Laplace
from fisher8_jax.families._log_normal import LogNormal
from fisher8_jax.families._weibull import Weibull


def censored_nll(dist: Family, lower: Array, upper: Array, *, where: Array | None = None) -> Array:
    """The NLL of `lower <= target <= upper`, and of the value itself where the two are equal.

    `-ln(cdf(upper) - cdf(lower))` where `lower < upper`, computed in logarithms, so that it stays
    finite with a useful gradient far in the tails; `dist.nll(lower)` where `lower == upper`.

    Args:
        dist: a Gaussian, log-normal, Laplace or Weibull distribution.
        lower: the largest value known to be at most the target; `-jnp.inf` where only an upper
            bound is known (left-censored). The shape of the predictions.
        upper: the smallest value known to be at least the target; `jnp.inf` where only a lower
            bound is known (right-censored, as for survival times). The same shape.
        where: boolean, False for missing targets: their value is 0, their bounds may be nan.

    Returns:
        One value per element; nan where `lower > upper`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> lower, upper = jnp.array([0.0, 0.0]), jnp.array([0.0, jnp.inf])
        >>> censored_nll(dist, lower, upper)  # ln(2 pi)/2 for the value, ln 2 for the half line
        Array([0.9189385, 0.6931472], dtype=float32)

    Reference:
        Tobin (1958), Estimation of relationships for limited dependent variables.
    """
    if type(dist) not in log_tails.registry:
        names = ", ".join(t.__name__ for t in log_tails.registry if t is not object)
        raise TypeError(
            f"`dist` must be one of {names}, whose tails have a stable logarithm, got "
            f"{type(dist).__name__}."
        )
    lower = check_targets(lower, dist.batch_shape, "lower")
    upper = check_targets(upper, dist.batch_shape, "upper")
    if where is not None:
        where = check_mask("where", where, dist.batch_shape)
        lower, upper = jnp.where(where, lower, 1), jnp.where(where, upper, 1)
    is_exact = lower == upper
    inside = jnp.where(is_exact & jnp.isfinite(lower), lower, 1)
    exact = dist.nll(inside.astype(jnp.result_type(inside, dist.mean)))
    interval = -_log_interval(dist, jnp.where(is_exact, 0, lower), jnp.where(is_exact, 1, upper))
    values = jnp.where(lower > upper, jnp.nan, jnp.where(is_exact, exact, interval))
    return values if where is None else jnp.where(where, values, 0)


@functools.singledispatch
def log_tails(dist: Family, targets: Array) -> tuple[Array, Array]:
    """`ln P(Y <= targets)` and `ln P(Y > targets)` for finite targets."""
    raise TypeError(f"No stable tails are known for {type(dist).__name__}.")


@log_tails.register
def _(dist: Gaussian, targets: Array) -> tuple[Array, Array]:
    dist, targets = dist.prepare(targets)
    z = multiply_by_exp(targets - dist.mean, -0.5 * dist.log_variance)
    return log_ndtr(z), log_ndtr(-z)


@log_tails.register
def _(dist: LogNormal, targets: Array) -> tuple[Array, Array]:
    is_inside = targets > 0
    below, above = log_tails(dist.of_logarithm, jnp.log(jnp.where(is_inside, targets, 1)))
    return jnp.where(is_inside, below, -jnp.inf), jnp.where(is_inside, above, 0)


@log_tails.register
def _(dist: Laplace, targets: Array) -> tuple[Array, Array]:
    dist, targets = dist.prepare(targets)
    z = multiply_by_exp(targets - dist.mean, -dist.log_scale)
    size = jnp.abs(z)
    near, far = jnp.log1p(-0.5 * jnp.exp(-size)), -size - math.log(2)
    return jnp.where(z < 0, far, near), jnp.where(z < 0, near, far)


@log_tails.register
def _(dist: Weibull, targets: Array) -> tuple[Array, Array]:
    w, is_inside = dist.log_hazard(targets)
    hazard = jnp.exp(w)
    below = jnp.log(-jnp.expm1(-hazard))
    return jnp.where(is_inside, below, -jnp.inf), jnp.where(is_inside, -hazard, 0)


def _log_interval(dist: Family, lower: Array, upper: Array) -> Array:
    """`ln(P(Y <= upper) - P(Y <= lower))`, in the tail where the two differ most."""
    has_lower, has_upper = lower > -jnp.inf, upper < jnp.inf
    lower_below, lower_above = log_tails(dist, jnp.where(has_lower, lower, 0))
    upper_below, upper_above = log_tails(dist, jnp.where(has_upper, upper, 0))
    both = has_lower & has_upper
    # Above the median both cdfs are close to 1; their complements still tell them apart.
    is_above = lower_above < lower_below
    large = jnp.where(is_above, lower_above, upper_below)
    small = jnp.where(is_above, upper_above, lower_below)
    # exp(small - large) < 1; the guard keeps the unused branch away from log(0).
    is_usable = both & (small < large)
    gap = jnp.where(is_usable, small - large, -1)
    between = large + jnp.log(-jnp.expm1(gap))
    between = jnp.where(is_usable, between, -jnp.inf)
    return jnp.where(both, between, jnp.where(has_lower, lower_above, upper_below))
