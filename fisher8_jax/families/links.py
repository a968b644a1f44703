"""From the raw outputs of a network to a `Gaussian`: the heads of the published methods.

Each function takes plain arrays of one shape, so it serves any framework. The simpler links
(log-variance, softplus of the standard deviation or of the variance) are constructors of `Gaussian`
itself.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._checks import check_floating, check_positive, check_same_shape
from fisher8_jax._numerics import at_least_float32
from fisher8_jax.families.gaussian import Gaussian

Tree = TypeVar("Tree")


def natural_gaussian(
    raw_location: Array, raw_precision: Array, *, min_precision: float = 1e-8
) -> Gaussian:
    """The head of natural-parameter regression: `mean = raw_location / precision`.

    With `precision = softplus(raw_precision) + min_precision` the natural parameters are
    `eta1 = raw_location` and `eta2 = -precision / 2`, so the gradient of the NLL with respect to
    `raw_location` is `mean - targets`, whatever the variance.

    Args:
        raw_location: first output of the network, any shape.
        raw_precision: second output, the same shape.
        min_precision: keeps the variance below `1 / min_precision`.

    Returns:
        The distribution with `log_variance = -ln(precision)`, in the dtype of the outputs.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = natural_gaussian(jnp.array([8.0]), jnp.array([4.0]))
        >>> dist.mean, dist.variance
        (Array([1.9909...], dtype=float32), Array([0.2488...], dtype=float32))

    Reference:
        Immer et al., Effective Bayesian heteroscedastic regression with deep neural networks,
        NeurIPS 2023.
    """
    check_positive("min_precision", min_precision)
    location, raw = _checked(raw_location=raw_location, raw_precision=raw_precision)
    # In half precision the smallest precision would round to 0.
    precision = jax.nn.softplus(at_least_float32(raw)) + min_precision
    mean = at_least_float32(location) / precision
    return Gaussian(mean.astype(location.dtype), -jnp.log(precision).astype(raw.dtype))


def soft_bounded_gaussian(
    mean: Array, raw: Array, *, min_log_variance: Any, max_log_variance: Any
) -> Gaussian:
    """The head of PETS: a log-variance between two bounds that are learned.

    In two steps, each a softplus instead of a clip, so that a gradient always remains:

        below = max_log_variance - softplus(max_log_variance - raw)
        log_variance = min_log_variance + softplus(below - min_log_variance)

    The second step may lift the result above `max_log_variance`, by at most
    `softplus(min_log_variance - max_log_variance)`.

    Args:
        mean: predicted means, any shape.
        raw: raw log-variances, the same shape.
        min_log_variance: learned lower bound, a scalar or one value per trailing coordinate.
        max_log_variance: learned upper bound, likewise.

    Returns:
        The distribution; the bounds receive gradients too. Add `soft_bounds_penalty` to the loss.

    Example:
        >>> import jax.numpy as jnp
        >>> raw = jnp.array([-50.0, -2.0, 50.0])
        >>> bounds = dict(min_log_variance=-10.0, max_log_variance=0.5)
        >>> soft_bounded_gaussian(jnp.zeros(3), raw, **bounds).log_variance.round(2)
        Array([-10.  ,  -2.08,   0.5 ], dtype=float32)

    Reference:
        Chua et al., Deep reinforcement learning in a handful of trials, NeurIPS 2018,
        the appendix on well-behaved probabilistic networks.
    """
    mean, raw = _checked(mean=mean, raw=raw)
    low = _expand_bound("min_log_variance", min_log_variance, raw)
    high = _expand_bound("max_log_variance", max_log_variance, raw)
    below = high - jax.nn.softplus(high - raw)
    return Gaussian(mean, low + jax.nn.softplus(below - low))


def soft_bounds_penalty(
    min_log_variance: Any, max_log_variance: Any, *, scale: float = 0.01
) -> Array:
    """`scale * (sum(max_log_variance) - sum(min_log_variance))`, which draws the bounds together.

    Example:
        >>> import jax.numpy as jnp
        >>> soft_bounds_penalty(jnp.array([-10.0, -10.0]), jnp.array([0.5, 0.5]))
        Array(0.21, dtype=float32)
    """
    return scale * (jnp.sum(jnp.asarray(max_log_variance)) - jnp.sum(jnp.asarray(min_log_variance)))


def latent_gaussian(
    mean: Array, factor: Array, raw_diagonal: Array, *, min_diagonal: float = 1e-3
) -> Gaussian:
    """The head of the latent-variable layer: `variance = factor^2 + diagonal^2`.

    The latent is `mean + factor * e + diagonal * e'` with independent standard normal `e`, `e'` and
    `diagonal = softplus(raw_diagonal) + min_diagonal`. With one target per input the two noises
    cannot be told apart, so the latent is this Gaussian; the loss adds the temperature.

    Args:
        mean: predicted means, any shape.
        factor: the low-rank factor, unconstrained, the same shape.
        raw_diagonal: second scale before its softplus, the same shape.
        min_diagonal: keeps the variance above `min_diagonal^2`.

    Returns:
        The distribution of the latent.

    Example:
        >>> import jax.numpy as jnp
        >>> raw_diagonal = jnp.log(jnp.expm1(jnp.array([4.0])))
        >>> latent_gaussian(jnp.zeros(1), jnp.array([3.0]), raw_diagonal, min_diagonal=1e-9).std
        Array([5.], dtype=float32)

    Reference:
        Collier et al., Correlated input-dependent label noise in large-scale image classification,
        CVPR 2021, with one output.
    """
    check_positive("min_diagonal", min_diagonal)
    mean, factor, raw = _checked(mean=mean, factor=factor, raw_diagonal=raw_diagonal)
    diagonal = jax.nn.softplus(at_least_float32(raw)) + min_diagonal
    # A ratio, because the logarithm of factor^2 has no derivative at 0.
    ratio = at_least_float32(factor) / diagonal
    log_variance = 2 * jnp.log(diagonal) + jnp.log1p(jnp.square(ratio))
    return Gaussian(mean, log_variance.astype(raw.dtype))


def sever(features: Tree) -> Tree:
    """Returns `features` unchanged and stops their gradient: what the scale head must not train.

    The scale head of Faithful sees `sever(trunk(x))`, the mean head `trunk(x)`, so the shared trunk
    learns from the mean alone.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> jax.grad(lambda x: x * sever(x))(jnp.float32(3.0))
        Array(3., dtype=float32)

    Reference:
        Stirn et al., Faithful heteroscedastic regression with neural networks, AISTATS 2023.
    """
    return lax.stop_gradient(features)


def _checked(**arrays: Any) -> tuple[Array, ...]:
    """The arrays as floating-point JAX arrays of one shape."""
    checked = {name: check_floating(name, array) for name, array in arrays.items()}
    check_same_shape(checked)
    return tuple(checked.values())


def _expand_bound(name: str, bound: Any, raw: Array) -> Array:
    """`bound` with the shape of `raw`; it may be a scalar or cover the trailing axes."""
    bound = jnp.asarray(bound, raw.dtype)
    trailing = raw.shape[raw.ndim - bound.ndim :] if bound.ndim <= raw.ndim else None
    if bound.shape != trailing:
        raise ValueError(
            f"`{name}` must be a scalar or have the shape of the trailing axes of `raw`, "
            f"{raw.shape}, got {bound.shape}. One bound per output needs shape "
            f"{raw.shape[-1:]}."
        )
    return lax.broadcast_in_dim(bound, raw.shape, tuple(range(raw.ndim - bound.ndim, raw.ndim)))
