"""The penalty that goes with learned bounds of the log-variance."""

import chex
import jax.numpy as jnp
from jax import Array


def soft_bounds_penalty(
    min_log_variance: chex.Numeric, max_log_variance: chex.Numeric, *, scale: float = 0.01
) -> Array:
    """`scale * (sum(max_log_variance) - sum(min_log_variance))`, which draws the bounds together.

    What PETS adds to the loss when the head is `Gaussian.from_soft_bounds`.

    Args:
        min_log_variance: learned lower bounds, any shape.
        max_log_variance: learned upper bounds.
        scale: the weight of the penalty.

    Example:
        >>> import jax.numpy as jnp
        >>> soft_bounds_penalty(jnp.array([-10.0, -10.0]), jnp.array([0.5, 0.5]))
        Array(0.21, dtype=float32)
    """
    return scale * (jnp.sum(jnp.asarray(max_log_variance)) - jnp.sum(jnp.asarray(min_log_variance)))
