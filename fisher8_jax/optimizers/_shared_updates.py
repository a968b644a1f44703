"""A smaller shared component of weight updates: what all weights of a unit do together kills it.

Let a unit sum `n` activations with a mean well above zero, as those of a ReLU layer. Weights that
move by `d` in directions of their own change the sum by about `d * sqrt(n)`. If all move by `d`
together, it changes by `d * n`, for every input alike: after a few such steps the unit is dead or
always active. The bias can do the same without the danger; a layer without one learns its level
more slowly.

So the shared (mean) component of an update is divided by `sqrt(n)`, which makes both equally
strong.
"""

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.numerics import at_least_float32


def shrink_shared_updates() -> optax.GradientTransformation:
    """Divides the mean of an update along each axis of a matrix by the root of that axis' length.

        updates - (1 - 1 / sqrt(n)) * mean(updates)        along every axis, n its length

    It runs along all axes, because libraries disagree about which one holds the inputs of a unit;
    arrays with fewer than two axes stay as they are. What is left of the update is multiplied
    by a positive definite matrix, so a descent direction stays one, and a stationary point too.

    Returns:
        An Optax transformation without state.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.optimizers import shrink_shared_updates
        >>> link = shrink_shared_updates()
        >>> together, apart = jnp.ones((4, 1)), jnp.array([[1.0], [-1.0], [1.0], [-1.0]])
        >>> updates, _ = link.update({"together": together, "apart": apart}, link.init({}))
        >>> print(updates["together"].ravel(), updates["apart"].ravel())
        [0.5 0.5 0.5 0.5] [ 1. -1.  1. -1.]

    Reference:
        Yong, Huang, Hua and Zhang, Gradient centralization, 2020, which removes the mean of the
        gradient altogether. With few inputs too little would be left to learn from.
    """
    return optax.stateless(lambda updates, _: jax.tree.map(_shrink, updates))


def _shrink(update: Array) -> Array:
    if jnp.ndim(update) < 2 or not jnp.size(update):
        return update
    wide = at_least_float32(jnp.asarray(update))
    for axis, length in enumerate(wide.shape):
        if length > 1:
            wide = wide - (1 - length**-0.5) * jnp.mean(wide, axis=axis, keepdims=True)
    return wide.astype(update.dtype)
