"""Sums of which one term may overflow."""

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.numerics import Scaled, multiply_by_exp


def add_scaled(plain: Array, value: Array, log_scale: Array) -> Scaled:
    """`plain + value * exp(log_scale)`, with a scale taken out where the product is large."""
    common = jnp.maximum(log_scale, 0)
    total = multiply_by_exp(plain, -common) + multiply_by_exp(value, log_scale - common)
    return Scaled(total, common)
