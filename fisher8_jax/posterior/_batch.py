"""The evidence from one batch of rows, inside a compiled training step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.checks import check_count
from fisher8_jax._internal.sharding import check_outside_shard_map, with_auto_axes
from fisher8_jax.curvature import jacobian_rows
from fisher8_jax.posterior._dual import Dual, group_grams, whiten
from fisher8_jax.posterior._evidence import Evidence, evidence_of
from fisher8_jax.posterior._network import Network, PredictOne
from fisher8_jax.posterior._outputs import outputs_of
from fisher8_jax.posterior._prior import Prior, resolve, squared_distances


def batch_evidence(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    targets: Array,
    log_precision: Array,
    *,
    prior: Prior | None = None,
    rows: int | None = None,
) -> Evidence:
    """The log evidence of the rows at hand, or a lower bound for all rows by a batch of them.

    Rows outside the batch count as further batches like it. Leaving out how batches inform each
    other raises `log det A`, so on average over random batches the result is a lower bound of the
    evidence of all rows. A pure function in the arithmetic of its arguments: for `jax.jit`,
    `jax.vmap`, and gradients in `log_precision` by hand (`Evidence.gradient`) or by `jax.grad`.

    Args:
        predict_one: see `fit_posterior`.
        params: see `fit_posterior`.
        inputs: of the batch.
        targets: of the batch.
        log_precision: logarithms of the precisions, one for each group of `prior`.
        prior: its groups and its mean; its `precision` is not used.
        rows: how many rows there are in all; those of the batch if None.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import batch_evidence
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x = jnp.linspace(-1, 1, 20)
        >>> @jax.jit
        ... def gradient(log_precision):
        ...     found = batch_evidence(predict_one, jnp.array(2.0), x, 2 * x, log_precision)
        ...     return found.gradient, found.effective
        >>> print(*(value.round(2) for value in gradient(jnp.zeros(1))))
        [-1.56] [0.88]

    Reference:
        Immer et al., Stochastic marginal likelihood gradients using neural tangent kernels, ICML
        2023.
    """
    check_outside_shard_map("batch_evidence")
    prior = Prior() if prior is None else prior

    def compute(params: ArrayTree, *data: Any) -> Evidence:
        return _evidence(predict_one, params, *data, prior=prior, rows=rows)

    return with_auto_axes(compute, params, inputs, targets, log_precision)


def _evidence(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    targets: Array,
    log_precision: Array,
    *,
    prior: Prior,
    rows: int | None,
) -> Evidence:
    batch = jax.tree.leaves(inputs)[0].shape[0]
    total = batch if rows is None else check_count("rows", rows, at_least=batch)
    _, found = jax.eval_shape(lambda p, x: jacobian_rows(predict_one, p, x), params, inputs)
    sizes = map(np.size, jax.tree.leaves(params))
    reached = [row is not None and size > 0 for row, size in zip(found, sizes, strict=True)]
    groups = resolve(prior, params, reached)
    number = len(groups.names)
    if np.shape(log_precision) != (number,):
        raise ValueError(
            f"`log_precision` must have one number for each of the {number} groups, "
            f"{', '.join(groups.names)}; got shape {np.shape(log_precision)}."
        )
    dist, leaf_rows = Network(params, predict_one, groups.leaves).rows(inputs)
    seen = outputs_of(dist, targets)
    white = whiten(leaf_rows, seen.root)
    grams = group_grams(white, white, groups.of_leaf, number)
    system = Dual(white, seen.root, grams, groups.of_leaf)
    log_precision = jnp.asarray(log_precision, grams.dtype)
    factor, scale = system.factorize(log_precision), total / batch
    squares = squared_distances(prior, groups, params).astype(grams.dtype)
    return evidence_of(system, factor, log_precision, scale * jnp.sum(seen.nll), squares, scale)
