"""The losses, and the table that finds them by name."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import chex
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._fisher8 import check_family, fisher8_nll
from fisher8_jax._internal.checks import check_floating, check_number, check_weights
from fisher8_jax._internal.numerics import HALF_LOG_2PI, multiply_by_exp
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families import Family, Gaussian
from fisher8_jax.losses._elements import per_element


def nll(
    dist: Family,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    constant: bool = True,
) -> Array:
    """`log_variance/2 + z^2/2 + ln(2 pi)/2` with `z = (targets - mean) / std`.

    * mean update: `exp(-log_variance) * (mean - targets)`
    * scale update: `(1 - z^2) / 2` on the log-variance
    * stops nothing

    Points with a large predicted variance hardly move the mean: the failure that the other losses
    of this package repair.

    Args:
        dist: the predicted distribution; other families than the Gaussian give their own NLL.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        constant: whether terms that depend on nothing, `ln(2 pi)/2`, are included.

    Returns:
        One value per element.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> nll(dist, jnp.array([1.0, 2.0]), constant=False)
        Array([0.5, 2. ], dtype=float32)

    Reference:
        Nix and Weigend, Estimating the mean and variance of the target probability distribution,
        ICNN 1994.
    """
    return per_element(
        lambda dist, targets: dist.nll(targets, constant=constant), dist, targets, where, weights
    )


def unit_variance(
    dist: Family, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """`(mean - targets)^2 / 2`, the NLL of a Gaussian with variance 1 without its constant.

    * mean update: `mean - targets`
    * scale update: 0
    * stops nothing; the scale is not trained

    Arguments and result are those of `nll`; the coordinates of a vector-valued target are summed.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> unit_variance(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 2.0]))
        Array([0.5, 2. ], dtype=float32)
    """
    return per_element(half_squared_error, dist, targets, where, weights)


def half_squared_error(dist: Family, targets: Array) -> Array:
    """`(mean - targets)^2 / 2`, summed over the coordinates of a vector-valued target."""
    event_axes = tuple(range(-len(dist.event_shape), 0))
    return jnp.sum(0.5 * jnp.square(targets - dist.mean), event_axes)


def faithful(
    dist: Family, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """`(mean - targets)^2 / 2 + nll` where the NLL sees a constant mean.

    * mean update: `mean - targets`, that of `unit_variance`
    * scale update: `(1 - z^2) / 2` on the log-variance, that of `nll`
    * stops the gradient from the NLL to the mean

    The method has a second half in the network: the scale head reads the shared trunk through
    `jax.lax.stop_gradient`, so that the trunk, too, learns from the mean alone.

    Arguments and result are those of `nll`, for families that have their mean as a parameter. The
    value is not a likelihood; compare models by `nll`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> loss = lambda mean: faithful(Gaussian(mean, jnp.full(2, 3.0)), jnp.ones(2)).sum()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([-1., -1.], dtype=float32)

    Reference:
        Stirn et al., Faithful heteroscedastic regression with neural networks, AISTATS 2023,
        the objective with both of its modifications.
    """
    check_family("`dist`", dist)
    if "mean" not in array_fields(dist):
        raise TypeError(
            "`dist` must have its mean as a parameter for `faithful`, which trains mean and scale "
            f"apart, got {type(dist).__name__} with parameters {', '.join(array_fields(dist))}."
        )

    def loss(dist: Family, targets: Array) -> Array:
        return half_squared_error(dist, targets) + _with_stopped_mean(dist).nll(targets)

    return per_element(loss, dist, targets, where, weights)


def _with_stopped_mean(dist: Any) -> Any:
    return dataclasses.replace(dist, mean=lax.stop_gradient(dist.mean))


def beta_nll(
    dist: Family,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    beta: chex.Numeric = 0.5,
) -> Array:
    """`stop_gradient(variance)^beta * nll`, between the NLL (0) and the mean path of MSE (1).

    * mean update: `exp((beta - 1) * log_variance) * (mean - targets)`
    * scale update: `exp(beta * log_variance) * (1 - z^2) / 2` on the log-variance
    * stops the gradient through the weight `variance^beta`

    Other arguments and the result are those of `nll`, for families with scalar targets and a
    variance. The value is not a likelihood; compare models by `nll`.

    Args:
        beta: between 0 and 1; a scalar, also a traced one such as `optax.linear_schedule(1, 0,
            1000)(step)`, or one value per element. The paper recommends 0.5.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> loss = lambda mean: beta_nll(Gaussian(mean, jnp.full(2, 3.0)), jnp.ones(2), beta=1.0)
        >>> jax.grad(lambda mean: loss(mean).sum())(jnp.zeros(2))
        Array([-1., -1.], dtype=float32)

    Reference:
        Seitzer et al., On the pitfalls of heteroscedastic uncertainty estimation with probabilistic
        neural networks, ICLR 2022, the definition of the beta-NLL.
    """
    check_number("beta", beta, at_least=0, at_most=1)

    def loss(dist: Family, targets: Array) -> Array:
        if isinstance(dist, Gaussian):
            return _gaussian_beta_nll(dist, targets, beta)
        if dist.event_shape != ():
            raise TypeError(
                f"`dist` must have scalar targets for `beta_nll`, got {type(dist).__name__} with "
                f"event shape {dist.event_shape}."
            )
        power = _check_beta(beta, dist, dist.variance)
        return lax.stop_gradient(dist.variance) ** power * dist.nll(targets)

    return per_element(loss, dist, targets, where, weights)


def _gaussian_beta_nll(dist: Gaussian, targets: Array, beta: chex.Numeric) -> Array:
    # The weight enters the exponent of z: apart, variance^beta and 1/variance overflow or vanish
    # long before their product does.
    power = _check_beta(beta, dist, dist.log_variance)
    log_weight = power * lax.stop_gradient(dist.log_variance)
    weighted_z = multiply_by_exp(targets - dist.mean, 0.5 * (log_weight - dist.log_variance))
    scale_term = jnp.exp(log_weight) * (0.5 * dist.log_variance + HALF_LOG_2PI)
    return scale_term + 0.5 * jnp.square(weighted_z)


def _check_beta(beta: chex.Numeric, dist: Family, like: Array) -> Array:
    """A scalar as it is, an array expanded to the predictions."""
    array = check_floating("beta", jnp.asarray(beta, like.dtype))
    return array if array.ndim == 0 else check_weights("beta", array, dist.batch_shape)


def natural_gradient(
    dist: Family, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """The NLL, back-propagated by its inverse Fisher information.

    * mean update: `mean - targets`
    * scale update: `1 - z^2` on the log-variance
    * replaces the gradient of the NLL; targets, mask and weights are constants

    A step of size `a` moves the predicted mean by `a (targets - mean)` and, to first order, the
    variance by `a ((targets - mean)^2 - variance)`: the moments move towards those of the data, as
    in natural-gradient expectation maximisation for a mixture of one component.

    Arguments and result are those of `nll`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> targets = jnp.array([3.0, 4.0])
        >>> loss = lambda s: natural_gradient(Gaussian(jnp.zeros(2), s), targets).sum()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([ -8., -15.], dtype=float32)

    Reference:
        Chen, Bayrooti and Morad, Learning mixture density via natural gradient expectation
        maximization, arXiv 2602.10602, with one component; Fisher8, UAI 2026, the per-point rule.
    """
    return fisher8_nll(dist, targets, where=where, weights=weights, normalize=False)


LOSSES: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "unit_variance": unit_variance,
        "nll": nll,
        "beta_nll": beta_nll,
        "faithful": faithful,
        "natural_gradient": natural_gradient,
        "fisher8": fisher8_nll,
    }
)
"""Every loss by the name of its function."""
