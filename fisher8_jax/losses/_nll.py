"""Negative log-likelihood of a predicted mean and variance (Nix and Weigend 1994)."""

from jax import Array

from fisher8_jax.families import Family
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
