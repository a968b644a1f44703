"""The log evidence of a linearised network, and how the prior's precisions follow from it.

    log evidence = - sum of NLL - 1/2 sum_g precision_g |params_g - mean_g|^2 - 1/2 log det A

Its derivative with respect to a log-precision is half the difference of the group's effective
number of parameters and `precision_g |params_g - mean_g|^2`. Setting that to zero is MacKay's fixed
point.

Reference:
    MacKay, The evidence framework applied to classification networks, Neural Computation 1992.
    Immer et al., Stochastic marginal likelihood gradients using neural tangent kernels, ICML 2023
    (the lower bound of blocks).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_positive
from fisher8_jax.posterior._dual import Dual
from fisher8_jax.posterior._primal import Primal

# Beyond these a group is free, or fixed at the prior's mean, for every purpose.
LOWEST, HIGHEST = jnp.log(1e-8).item(), jnp.log(1e8).item()


class Evidence(NamedTuple):
    """The evidence for some precisions of the prior.

    Attributes:
        log_evidence: a number in nats; a lower bound if it came from blocks of the rows.
        gradient: its derivative with respect to the logarithms of the precisions, one per group.
        effective: the effective number of parameters of each group.
        squares: `|params - mean|^2` of each group.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.posterior import Evidence, update_precision
        >>> found = Evidence(jnp.array(-3.0), jnp.array([0.5]), jnp.array([3.0]), jnp.array([2.0]))
        >>> jnp.exp(update_precision(jnp.zeros(1), found)).round(2)
        Array([1.5], dtype=float32)
    """

    log_evidence: Array
    gradient: Array
    effective: Array
    squares: Array


def evidence_of(
    system: Dual | Primal,
    factor: Array,
    log_precision: Array,
    nll: Array,
    squares: Array,
    scale: float = 1.0,
) -> Evidence:
    """The evidence of a factorised system.

    Args:
        system: either form.
        factor: what it was factorised to.
        log_precision: one for each group.
        nll: summed over all rows.
        squares: see `Evidence`.
        scale: how many times the rows of the system stand for all rows.
    """
    effective = scale * system.effective(factor, log_precision)
    penalty = jnp.exp(log_precision) * squares
    value = -nll - 0.5 * jnp.sum(penalty) - 0.5 * scale * system.log_det(factor)
    return Evidence(value, 0.5 * (effective - penalty), effective, jnp.asarray(squares))


def update_precision(log_precision: Array, evidence: Evidence, *, max_step: float = 2.0) -> Array:
    """One step towards MacKay's fixed point, `precision = effective / |params - mean|^2`.

    Args:
        log_precision: logarithms of the present precisions, one per group.
        evidence: at these precisions.
        max_step: the largest change of a logarithm. During training small steps keep a group from
            dying before its weights have been learned.

    Returns:
        The next logarithms, between those of 1e-8 and 1e8.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.posterior import Evidence, update_precision
        >>> found = Evidence(jnp.array(0.0), jnp.array([4.0]), jnp.array([8.0]), jnp.array([1e-9]))
        >>> update_precision(jnp.zeros(1), found, max_step=0.5)
        Array([0.5], dtype=float32)
    """
    check_positive("max_step", max_step)
    tiny = jnp.finfo(evidence.effective.dtype).tiny
    target = jnp.log(jnp.maximum(evidence.effective, tiny)) - jnp.log(
        jnp.maximum(evidence.squares, tiny)
    )
    step = jnp.clip(target - log_precision, -max_step, max_step)
    return jnp.clip(log_precision + step, LOWEST, HIGHEST)
