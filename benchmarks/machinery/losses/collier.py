"""The latent-variable layer with a temperature, for scalar regression (Collier et al. 2021)."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from benchmarks.machinery.losses.checks import check_gaussian
from fisher8_jax.families import Gaussian
from fisher8_jax.losses import per_element

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Draws alive at once, per element of the batch; 1000 draws then need the memory of 48.
_BLOCK = 32


def collier(
    dist: Gaussian,
    targets: Array,
    *,
    where: Array | None = None,
    weights: Array | None = None,
    temperature: chex.Numeric = 0.0,
    key: chex.PRNGKey | None = None,
    num_samples: int = 1000,
) -> Array:
    """`-ln mean_k N(targets; u_k, temperature^2)` over draws `u_k` of the latent `dist`.

    In the limit of many draws the loss is the NLL of `with_noise(dist, temperature)`, of variance
    `exp(log_variance) + temperature^2 = exp(t)`. With `z = (targets - mean) / exp(t / 2)`:

    * mean update: `exp(-t) * (mean - targets)`
    * scale update: `exp(log_variance - t) * (1 - z^2) / 2` on the log-variance
    * stops nothing; the draws are reparametrised, so the gradient flows through them

    At temperature 0 this limit is used itself, without draws: the NLL of `dist`.

    Args:
        dist: the Gaussian of the latent, made by `heads.latent`.
        targets: observed values, exactly the shape of the predictions.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        temperature: standard deviation of the observation around the latent, in the units of the
            targets. A traced temperature must be positive.
        key: a random key, a new one each step; needed unless the temperature is 0.
        num_samples: number of draws per element.

    Returns:
        One value per element. With draws it is biased upwards, by about half the relative variance
        of the averaged density over `num_samples`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist, targets = Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([0.0, 1.0])
        >>> collier(dist, targets, temperature=0.5, key=jax.random.key(0)).round(1)
        Array([1. , 1.4], dtype=float32)
        >>> with_noise(dist, 0.5).nll(targets).round(1)
        Array([1. , 1.4], dtype=float32)

    Reference:
        Collier et al., Correlated input-dependent label noise in large-scale image classification,
        CVPR 2021, with a Gaussian of width `temperature` in the place of the softmax.
    """
    check_gaussian("dist", dist, "collier")
    if _is_zero(temperature):
        return per_element(lambda dist, targets: dist.nll(targets), dist, targets, where, weights)
    if key is None:
        raise ValueError(
            "`key` must be given when `temperature` is not 0, because the loss is then an average "
            "over random draws. Pass for instance `key=jax.random.key(0)`, a new one each step."
        )

    def loss(dist: Gaussian, targets: Array) -> Array:
        return _monte_carlo_nll(dist, targets, temperature, key, num_samples=num_samples)

    return per_element(loss, dist, targets, where, weights)


# Compiled by itself, so that calls outside of `jit` compile the loop over blocks once.
@functools.partial(jax.jit, static_argnames="num_samples")
def _monte_carlo_nll(
    dist: Gaussian,
    targets: Array,
    temperature: chex.Numeric,
    key: chex.PRNGKey,
    *,
    num_samples: int,
) -> Array:
    dtype = jnp.result_type(dist.mean, targets)
    wide = jnp.promote_types(dtype, jnp.float32)
    residual = targets.astype(wide) - dist.mean.astype(wide)
    std = dist.std.astype(jnp.promote_types(dist.std.dtype, jnp.float32))
    temperature = jnp.asarray(temperature, std.dtype)
    num_blocks = math.ceil(num_samples / _BLOCK)

    # Recomputed in the backward pass, so that only one block of draws exists at a time.
    @jax.checkpoint
    def log_sum_of_block(block: tuple[Array, Array]) -> Array:
        block_key, first = block
        noise = jax.random.normal(block_key, (_BLOCK, *std.shape), std.dtype)
        z = (residual[None] - std[None] * noise) / temperature
        is_used = first + jnp.arange(_BLOCK) < num_samples
        is_used = is_used.reshape(_BLOCK, *(1,) * std.ndim)
        return logsumexp(-0.5 * jnp.square(z), axis=0, where=is_used)

    blocks = (jax.random.split(key, num_blocks), _BLOCK * jnp.arange(num_blocks))
    log_sum = logsumexp(jax.lax.map(log_sum_of_block, blocks), axis=0)
    values = jnp.log(temperature) + HALF_LOG_2PI + math.log(num_samples) - log_sum
    return values.astype(dtype)


def with_noise(dist: Gaussian, std: chex.Numeric) -> Gaussian:
    """Of a value with independent noise added: the variance plus `std^2`.

    Example:
        >>> import jax.numpy as jnp
        >>> with_noise(Gaussian.from_std(jnp.zeros(1), jnp.array([3.0])), 4.0).std
        Array([5.], dtype=float32)
    """
    log_noise = 2 * jnp.log(jnp.asarray(std, dist.log_variance.dtype))
    return Gaussian(dist.mean, jnp.logaddexp(dist.log_variance, log_noise))


def _is_zero(temperature: chex.Numeric) -> bool:
    return isinstance(temperature, int | float | np.number) and temperature == 0
