"""The incomplete gamma and beta functions of large parameters as integrals over a circle.

With `m = a / (a + b)`, `n = 1 - m` and `logit(s) = logit(m) + i t`,

    I_x(a, b) = exp(-deviance) / (2 pi) * integral over (-pi, pi) of exp(c K(t)) kernel(t)

    K(t) = ln(n + m exp(it)) - i m t
    kernel(t) = (n + m exp(shift)) / ((m + n exp(-it)) (exp(it) - exp(shift)))

for `shift < 0`, and minus the upper tail for `shift > 0`. The modulus of `exp(c K)` is a bell of
variance `1 / (a n)`: the midpoint rule with a step of a fraction of its width converges
geometrically, once the pole at `t = -i shift` is accounted for by a logistic function of its
distance. `m = 0` gives the incomplete gamma function.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.trees import append_axes


def contour_tails(a: Array, b: Array | None, shift: Array, deviance: Array) -> tuple[Array, Array]:
    """Lower and upper tail; `b` None for the gamma function."""
    is_wide = a.dtype == jnp.float64
    count, width = (26, 0.5) if is_wide else (10, 0.85)
    m, n = (jnp.zeros_like(a), jnp.ones_like(a)) if b is None else (a / (a + b), b / (a + b))
    # Never more than the whole circle.
    step = jnp.minimum(width / jnp.sqrt(a * n), math.pi / count)
    t = append_axes(jnp.asarray(np.arange(count) + 0.5, a.dtype), 1 + a.ndim) * step[None]
    modulus, phase = _exponent(t, a[None], None if b is None else b[None], m[None], n[None])
    real, imag = _inverse_kernel(t, n[None], shift[None])
    kernel = real * jnp.cos(phase) + imag * jnp.sin(phase)
    total = jnp.sum(jnp.exp(modulus) * kernel / (jnp.square(real) + jnp.square(imag)), axis=0)
    decay = jnp.exp(-jnp.abs(shift))
    numerator = jnp.where(shift > 0, -(m + n * decay), n + m * decay)
    pole = jax.nn.sigmoid(-2 * math.pi / step * jnp.abs(shift))
    small = pole + jnp.exp(-deviance) * numerator * total * (step / math.pi)
    return jnp.where(shift > 0, 1 - small, small), jnp.where(shift > 0, small, 1 - small)


def _inverse_kernel(t: Array, n: Array, shift: Array) -> tuple[Array, Array]:
    """`(1 - n + n exp(-it)) (exp(it) - exp(shift))`, times `exp(-shift)` where that is below 1."""
    sine, versine = jnp.sin(t), 2 * jnp.square(jnp.sin(0.5 * t))
    decay, gap = jnp.exp(-jnp.abs(shift)), jnp.expm1(-jnp.abs(shift))
    is_up = shift > 0
    d_real = jnp.where(is_up, gap - decay * versine, -gap - versine)
    d_imag = jnp.where(is_up, decay * sine, sine)
    p_real, p_imag = 1 - n * versine, -n * sine
    return p_real * d_real - p_imag * d_imag, p_real * d_imag + p_imag * d_real


def _exponent(t: Array, a: Array, b: Array | None, m: Array, n: Array) -> tuple[Array, Array]:
    """Real and imaginary part of `c (ln(n + m exp(it)) - i m t)`."""
    half = jnp.square(jnp.sin(0.5 * t))
    if b is None:
        return -2 * a * half, jnp.where(t < _near(t), _cubic(t, a, m, n), a * (jnp.sin(t) - t))
    w = 4 * m * n * half
    real = 0.5 * (a + b) * jnp.log1p(-w)
    # The argument of the smaller of the two parts, so that c times a rounding stays small.
    small, large = jnp.minimum(m, n), jnp.maximum(m, n)
    angle = jnp.arctan2(small * jnp.sin(t), large + small * jnp.cos(t)) - small * t
    phase = (a + b) * jnp.where(m < n, angle, -angle)
    return real, jnp.where(t < _near(t), _cubic(t, a, m, n), phase)


def _near(t: Array) -> float:
    return 0.02 if t.dtype == jnp.float64 else 0.4


def _cubic(t: Array, a: Array, m: Array, n: Array) -> Array:
    """The imaginary part by the third to seventh cumulants of a Bernoulli."""
    q, square = m * n, jnp.square(t)
    seventh = 1 - 60 * q + 360 * jnp.square(q) - square / 72
    series = 1 - square / 20 * (1 - 12 * q - square / 42 * seventh)
    return a * n * (m - n) * series * square * t / 6
