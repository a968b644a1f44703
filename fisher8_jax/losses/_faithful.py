"""Faithful regression: the mean learns as if alone, the scale on a stopped mean (Stirn 2023)."""

import dataclasses
from typing import Any

from jax import Array, lax

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families import Family
from fisher8_jax.losses._elements import per_element
from fisher8_jax.losses._unit_variance import half_squared_error


def faithful(
    dist: Family, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """`(mean - targets)^2 / 2 + nll` where the NLL sees a constant mean.

    * mean update: `mean - targets`, that of `unit_variance`
    * scale update: `(1 - z^2) / 2` on the log-variance, that of `nll`
    * stops the gradient from the NLL to the mean

    The method has a second half in the network: the scale head reads the shared trunk through
    `jax.lax.stop_gradient`, so that the trunk, too, learns from the mean alone.

    Args:
        dist: the predicted distribution, of a family that has its mean as a parameter.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.

    Returns:
        One value per element. The value is not a likelihood; compare models by `nll`.

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
