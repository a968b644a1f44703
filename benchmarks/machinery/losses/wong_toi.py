"""The regularised objective and its search line (Wong-Toi et al. 2024).

Mean and precision have a network each. With the two penalties the objective is

    rho * L + (1 - rho) * (gamma * S(mean weights) + (1 - gamma) * S(precision weights))

where `S` sums squares and `L` is the mean of `precision * (mean - targets)^2 - ln(precision)`.

`wong_toi` gives the terms of `rho * L`, to be averaged; `wong_toi_penalty` the rest, to be added
after averaging. Good settings lie on the line `rho = 1 - gamma`, so one parameter is left. The
authors try `gamma` from `1 - 1e-11` over 0.90, 0.89, ..., 0.10 down to `1e-11`.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.families import Family
from fisher8_jax.losses import per_element


def wong_toi(
    dist: Family,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    rho: chex.Numeric = 0.5,
) -> Array:
    """`rho * (precision * (mean - targets)^2 - ln(precision))`, the data term of the objective.

    * mean update: `2 rho exp(-log_variance) (mean - targets)`, plus `wong_toi_penalty`'s decay
    * scale update: `rho (1 - z^2)` on the log-variance, plus its decay
    * stops nothing

    `L` is twice the NLL without its constant. For the warm-up of the mean, during which the
    precision is 1 and not penalised, pass `Gaussian(mean, jnp.zeros_like(mean))` and an empty tree
    as `precision_params`.

    Args:
        dist: the predicted distribution, any family.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        rho: weight of the data against the penalties, strictly between 0 and 1.

    Returns:
        One value per element; average it, the penalties are meant relative to a mean.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> wong_toi(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 2.0]), rho=0.5)
        Array([0.5, 2. ], dtype=float32)

    Reference:
        Wong-Toi et al., Understanding pathologies of deep heteroskedastic regression, UAI 2024.
    """

    def loss(dist: Family, targets: Array) -> Array:
        values = dist.nll(targets, constant=False)
        return 2 * jnp.asarray(rho, values.dtype) * values

    return per_element(loss, dist, targets, where, weights)


def wong_toi_penalty(
    mean_params: chex.ArrayTree,
    precision_params: chex.ArrayTree,
    *,
    rho: chex.Numeric = 0.5,
    gamma: chex.Numeric = 0.5,
    is_weight: Callable[[chex.Array], bool] = lambda leaf: np.ndim(leaf) >= 2,
) -> Array:
    """`(1 - rho) * (gamma * S(mean weights) + (1 - gamma) * S(precision weights))`.

    `S` is the sum of squares over the leaves that `is_weight` chooses.

    Args:
        mean_params: parameters of the network that predicts the mean, any pytree.
        precision_params: those of the network that predicts the scale; `{}` leaves them free.
        rho: weight of the data, strictly between 0 and 1, the same as in `wong_toi`.
        gamma: share of the mean in the penalty, strictly between 0 and 1.
        is_weight: which leaves are penalised. By default those with two axes or more, so biases
            and the scales of normalisation layers are free.

    Returns:
        A scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> mean_params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
        >>> wong_toi_penalty(mean_params, {}, rho=0.5, gamma=0.5)
        Array(1.5, dtype=float32)
    """

    def sum_of_squares(params: chex.ArrayTree) -> Array | int:
        return sum(jnp.sum(jnp.square(w)) for w in jax.tree.leaves(params) if is_weight(w))

    mean_part, precision_part = sum_of_squares(mean_params), sum_of_squares(precision_params)
    return jnp.asarray((1 - rho) * (gamma * mean_part + (1 - gamma) * precision_part))
