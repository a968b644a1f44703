"""Argument checks of the calibrators."""

import jax.numpy as jnp
from jax import Array


def check_calibrated_shape(name: str, fitted: Array, batch_shape: tuple[int, ...]) -> Array:
    """Returns `fitted` broadcast to new predictions of the same targets."""
    shape = fitted.shape
    fits = len(shape) == len(batch_shape) and all(
        m in (1, n) for m, n in zip(shape, batch_shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"The calibrator was fitted for targets of shape {shape} (1 on the axes of the "
            f"examples: `{name}`), which does not fit predictions of shape {batch_shape}. Only the "
            "number of examples may differ between `fit` and `apply`."
        )
    return jnp.broadcast_to(fitted, batch_shape)
