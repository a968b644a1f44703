"""The natural gradient of the NLL, point by point: Fisher8 without its batch norm."""

from jax import Array

from fisher8_jax._fisher8 import fisher8_nll
from fisher8_jax.families import Family


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

    Args:
        dist: the predicted distribution, any family.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.

    Returns:
        The NLL per element.

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
