"""How far a step moves the predicted distributions of a batch, in nats.

Fisher8 hands the network a direction whose mean part and log-variance part have unit L2 norm over
the batch. A step of length `learning_rate` along it changes the predictions by the *batch KL*

    sum_i KL(before_i || after_i)  ~  sum_i 1/2 step_i' F_i step_i                    (quadratic)
                                   <= learning_rate^2 (exp(-min log_variance)/2 + 1/4)   (bound)

A network moves its outputs by its own tangent kernel times that direction, so the bound speaks of
the step in distribution space; the divergence of actual predictions before and after needs no such
assumption.
"""

from typing import TypeVar

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_mask
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.families import Family, Gaussian

SomeFamily = TypeVar("SomeFamily", bound=Family)


def batch_kl(before: SomeFamily, after: SomeFamily, *, where: Array | None = None) -> Array:
    """The exact batch KL, `sum_i KL(before_i || after_i)`.

    Args:
        before: predictions before the update.
        after: predictions of the same rows after it.
        where: boolean, elements to count; same rank as the predictions.

    Returns:
        One number, in nats.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> before = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> after = Gaussian(jnp.full(2, 0.1), jnp.zeros(2))
        >>> round(float(batch_kl(before, after)), 6)
        0.01
    """
    _check_same_predictions(before, after, "after")
    return _sum(before.kl(after), before, where)


def batch_kl_bound(
    dist: Gaussian, learning_rate: float | Array, *, axis: int | tuple[int, ...] = 0
) -> Array:
    """The paper's trust radius, `learning_rate^2 (exp(-min log_variance)/2 + 1/4)`.

    It bounds the quadratic batch KL of a step of `learning_rate` along the Fisher8 direction of the
    Gaussian. Every remaining coordinate has norms of its own, so their bounds add up.

    Args:
        dist: predictions before the update.
        learning_rate: the step length eta.
        axis: the axes that one norm runs over, as in `fisher8`.

    Returns:
        One number, in nats.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> float(batch_kl_bound(Gaussian(jnp.zeros(2), jnp.zeros(2)), learning_rate=1.0))
        0.75

    Reference:
        Fisher8, UAI 2026, the bound on the batch KL.
    """
    if not isinstance(dist, Gaussian):
        raise TypeError(
            f"`batch_kl_bound` is derived for the Gaussian, got {type(dist).__name__}. "
            "Use `batch_kl`, which holds for every family."
        )
    log_variance = at_least_float32(dist.log_variance)
    per_coordinate = 0.5 * jnp.exp(-jnp.min(log_variance, axis)) + 0.25
    return jnp.square(learning_rate) * jnp.sum(per_coordinate)


def _sum(values: Array, dist: Family, where: Array | None) -> Array:
    values = at_least_float32(values)
    if where is not None:
        values = jnp.where(check_mask("where", where, dist.batch_shape), values, 0)
    return jnp.sum(values)


def _check_same_predictions(first: Family, second: Family, name: str) -> None:
    if type(second) is not type(first) or second.batch_shape != first.batch_shape:
        raise ValueError(
            f"`{name}` must be a {type(first).__name__} of shape {first.batch_shape}, got "
            f"{type(second).__name__}"
            + (f" of shape {second.batch_shape}." if isinstance(second, Family) else ".")
        )
