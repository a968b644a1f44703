"""The NLL of a network that predicts natural parameters (Immer et al. 2023)."""

from jax import Array

from fisher8_jax.families import Gaussian
from fisher8_jax.losses._checks import check_gaussian
from fisher8_jax.losses._elements import per_element


def natural_nll(
    dist: Gaussian, targets: Array, *, where: Array | None = None, weights: Array | None = None
) -> Array:
    """`-(eta1 y + eta2 y^2 + eta1^2 / (4 eta2) + ln(-2 eta2)/2) + ln(2 pi)/2` for `y = targets`.

    With `eta1 = mean / variance` and `eta2 = -1 / (2 variance)` the network's outputs:

    * mean update: `mean - targets` on `eta1`
    * scale update: `mean^2 + variance - targets^2` on `eta2`
    * stops nothing

    The number is that of `nll`, evaluated with the square completed because the sum above
    cancels. What makes the method is the head: use it with `Gaussian.from_natural`. On
    any other head the loss is the plain NLL.

    Args:
        dist: the predicted Gaussian, made by `Gaussian.from_natural`.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.

    Returns:
        One value per element.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> def loss(eta1):
        ...     return natural_nll(Gaussian.from_natural(eta1, jnp.full(2, 9.0)), jnp.ones(2)).sum()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([-1., -1.], dtype=float32)

    Reference:
        Immer et al., Effective Bayesian heteroscedastic regression with deep neural networks,
        NeurIPS 2023, the likelihood in its natural parametrisation.
    """
    check_gaussian("dist", dist, "natural_nll")
    return per_element(lambda dist, targets: dist.nll(targets), dist, targets, where, weights)
