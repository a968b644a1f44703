"""Beta-NLL: the NLL weighted by a power of the predicted variance (Seitzer et al. 2022)."""

import chex
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._internal.checks import check_floating, check_number, check_weights
from fisher8_jax._internal.numerics import HALF_LOG_2PI, multiply_by_exp
from fisher8_jax.families import Family, Gaussian
from fisher8_jax.losses._elements import per_element


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

    Args:
        dist: the predicted distribution, of any family with scalar targets and a variance.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        beta: between 0 and 1; a scalar, also a traced one such as `optax.linear_schedule(1, 0,
            1000)(step)`, or one value per element. The paper recommends 0.5.

    Returns:
        One value per element. The value is not a likelihood; compare models by `nll`.

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
