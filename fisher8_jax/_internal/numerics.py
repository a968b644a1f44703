"""Arithmetic that stays right at the ends of the floating-point range; knows no likelihood.

Three ideas carry this file:

* Quantities that overflow on their own but not after normalisation travel as
  `Scaled(value, log_scale)`, meaning `value * exp(log_scale)`.
* A vector is divided by its largest magnitude before it is squared, so no norm overflows.
* Zero is guarded by `where(q == 0, 1, q)`, never by `maximum(q, eps)`: the guard must not change
  any vector that has a direction. Infinities and nans are not guarded; they must stay loud.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from chex import ArrayTree
from jax import Array, lax

AxisName = str | tuple[str, ...]

# Numbers beyond which XLA writes to memory what it computes before it adds it up.
LARGE_ARRAY = 2**16

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

_LARGEST_LOG_SCALE = 1e5
_SMALL_ARRAY = 4096


class Scaled(NamedTuple):
    """The array `value * exp(log_scale)`, kept apart because the product may overflow.

    `log_scale` is None where the product is simply `value`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import Scaled
        >>> Scaled(jnp.array(2.0), log_scale=jnp.array(500.0))  # 2 exp(500) is no float32
        Scaled(value=Array(2., dtype=float32, ...), log_scale=Array(500., dtype=float32, ...))
    """

    value: Array
    log_scale: Array | None = None


class ScaledNorm(NamedTuple):
    """The L2 norm `exp(log_max) * sqrt(sum_sq)`; `log_max` is -inf for an all-zero vector."""

    log_max: Array
    sum_sq: Array


def at_least_float32(x: Array) -> Array:
    """Casts half-precision arrays to float32 and leaves wider ones alone."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def all_finite(tree: ArrayTree) -> Array:
    """Whether all numbers of a tree are finite."""
    # Sums of numbers are several times as fast as those of booleans, and tiny ones stay finite.
    arrays = group_small(tree)
    sums = [jnp.sum(x if x.size > LARGE_ARRAY else 1e-20 * x) for x in arrays]
    return jnp.isfinite(functools.reduce(jnp.add, sums, jnp.zeros(())))


def group_small(tree: ArrayTree) -> list[Array]:
    """The arrays of a tree in at least float32, small ones joined to one vector.

    For reductions over all numbers: on a processor one of them costs a microsecond however few
    numbers there are. Arrays whose sharding is part of their type stay alone.
    """
    leaves = [at_least_float32(jnp.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    small = [leaf for leaf in leaves if leaf.size <= _SMALL_ARRAY and not _is_split(leaf)]
    if len({leaf.dtype for leaf in small}) != 1:
        return leaves
    large = [leaf for leaf in leaves if leaf.size > _SMALL_ARRAY or _is_split(leaf)]
    return [jnp.concatenate([leaf.reshape(-1) for leaf in small]), *large]


def _is_split(leaf: Array) -> bool:
    return any(axis is not None for axis in jax.typeof(leaf).sharding.spec)


def multiply_by_exp(x: Array, log_factor: Array) -> Array:
    """`x * exp(log_factor)`, finite whenever the product is, and 0 wherever `x` is 0.

    The factor is applied in two halves because `exp(log_factor)` alone overflows at half the range
    of inputs whose product is representable.
    """
    half = jnp.exp(0.5 * log_factor)
    return jnp.where(x == 0, x, (x * half) * half)


def log_softplus(x: Array) -> Array:
    """`log(log(1 + exp(x)))` for every finite `x`, with a finite derivative.

    Below -20 the softplus is `e - e^2/2` with `e = exp(x)`, so its log is `x - e/2` to double
    precision; evaluating it directly would underflow to `log(0)`.
    """
    is_tail = x < -20
    body = jnp.log(jax.nn.softplus(jnp.where(is_tail, 0, x)))
    tail = jnp.where(is_tail, x, -20)
    return jnp.where(is_tail, tail - 0.5 * jnp.exp(tail), body)


def log_magnitude(x: Scaled) -> Array:
    """The logarithm of `|value * exp(log_scale)|`, -inf where the value is 0."""
    log_abs = jnp.log(jnp.abs(x.value))
    if x.log_scale is None:
        return log_abs
    return jnp.where(x.value == 0, log_abs, log_abs + _bounded(x.log_scale))


def rescale(x: Scaled, log_divisor: Array) -> Array:
    """`value * exp(log_scale - log_divisor)`."""
    log_factor = -log_divisor if x.log_scale is None else _bounded(x.log_scale) - log_divisor
    return multiply_by_exp(x.value, jnp.broadcast_to(log_factor, x.value.shape))


def scale_by(x: Scaled, factor: Array) -> Scaled:
    """`x * factor`; where the product leaves the range of its dtype, its logarithm is kept instead.

    Within the range it is the plain product, to the bit.
    """
    product = x.value * factor
    has_size = (x.value != 0) & (factor != 0) & jnp.isfinite(x.value) & jnp.isfinite(factor)
    fits = jnp.isfinite(product) & (jnp.abs(product) >= jnp.finfo(product.dtype).tiny)
    is_lost = has_size & ~fits
    value, other = (jnp.abs(jnp.where(is_lost, part, 1)) for part in (x.value, factor))
    log_size = jnp.log(value) + jnp.log(other)
    sign = jnp.sign(x.value) * jnp.sign(factor)
    log_scale = log_size if x.log_scale is None else x.log_scale + log_size
    return Scaled(jnp.where(is_lost, sign, product), log_scale)


def materialize(x: Scaled) -> Array:
    """`value * exp(log_scale)` as a plain array; overflows where the product does."""
    return x.value if x.log_scale is None else multiply_by_exp(x.value, x.log_scale)


def l2_norm(x: Scaled, axis: tuple[int, ...], axis_name: AxisName | None = None) -> ScaledNorm:
    """The L2 norm over `axis` and over the mapped `axis_name`, safe from overflow and underflow."""
    log_max = jnp.max(log_magnitude(x), axis, keepdims=True, initial=-jnp.inf)
    sum_sq = jnp.sum(jnp.square(rescale(x, _zero_if_empty(log_max))), axis, keepdims=True)
    norm = ScaledNorm(log_max, sum_sq)
    return norm if axis_name is None else combine_norms_over(axis_name, norm)


def combine_norms(a: ScaledNorm, b: ScaledNorm) -> ScaledNorm:
    """The norm of two vectors laid end to end, from the norms of each."""
    log_max = jnp.maximum(a.log_max, b.log_max)
    reference = _zero_if_empty(log_max)

    def contribution(norm: ScaledNorm) -> Array:
        return norm.sum_sq * jnp.exp(2 * (norm.log_max - reference))

    return ScaledNorm(log_max, contribution(a) + contribution(b))


def combine_norms_over(axis_name: AxisName, norm: ScaledNorm) -> ScaledNorm:
    """The norm of all vectors along a mapped axis, laid end to end."""
    # pmax has no derivative rule, and none is wanted here.
    log_max = lax.pmax(lax.stop_gradient(norm.log_max), axis_name)
    factor = jnp.exp(2 * (norm.log_max - _zero_if_empty(log_max)))
    return ScaledNorm(log_max, lax.psum(norm.sum_sq * factor, axis_name))


def divide_by_norm(x: Scaled, norm: ScaledNorm) -> Array:
    """`x / norm`; zeros where the norm is 0, nan everywhere where the norm is not finite."""
    sum_sq = jnp.where(norm.sum_sq == 0, 1, norm.sum_sq)
    # One infinite entry would turn every other into a silent 0: spread the alarm instead.
    loud = jnp.where(norm.log_max == jnp.inf, jnp.nan, jnp.zeros_like(sum_sq))
    return rescale(x, _zero_if_empty(norm.log_max)) * lax.rsqrt(sum_sq + loud)


def _bounded(log_scale: Array) -> Array:
    """Scales beyond exp(+-1e5) count as equal: larger logarithms have no digits left for ratios.

    Infinite ones stay, because they come from infinite inputs and must be seen.
    """
    bounded = jnp.clip(log_scale, -_LARGEST_LOG_SCALE, _LARGEST_LOG_SCALE)
    return jnp.where(jnp.isfinite(log_scale), bounded, log_scale)


def _zero_if_empty(log_max: Array) -> Array:
    return jnp.where(log_max == -jnp.inf, 0, log_max)


def add_scaled(plain: Array, value: Array, log_scale: Array) -> Scaled:
    """`plain + value * exp(log_scale)`, with a scale taken out where the product is large."""
    common = jnp.maximum(log_scale, 0)
    total = multiply_by_exp(plain, -common) + multiply_by_exp(value, log_scale - common)
    return Scaled(total, common)
