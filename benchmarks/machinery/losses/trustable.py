"""Trustable: regression onto natural-gradient targets inside a trust region (Megerle 2023).

Every training point keeps a *reference*, the Gaussian predicted for it when the epoch began. One
step of the method, point by point:

    near   = project(dist, reference)                the prediction, brought near the reference
    target = project(natural_target(near), reference)     one natural step, brought near again
    loss   = (near.mean - target.mean)^2 + (near.std - target.std)^2      squared W2 distance

References are a `Gaussian` over all training points that a loop carries along: made by
`init_references`, read per batch by `gather_references`, renewed once an epoch by
`refresh_references`.
"""

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.machinery.losses.checks import check_gaussian, check_reference
from fisher8_jax.families import Gaussian
from fisher8_jax.losses import per_element


def trustable(
    dist: Gaussian,
    targets: Array,
    *,
    reference: Gaussian,
    where: Array | None = None,
    weights: Array | None = None,
    step_size: chex.Numeric = 0.1,
    mean_bound: chex.Numeric = 0.1,
    scale_bound: chex.Numeric = 0.01,
    scale_factor: float = 2.0,
    truncated: bool = True,
) -> Array:
    """`(mean - mean*)^2 + (std - std*)^2` with projected natural-gradient targets `mean*, std*`.

    * mean update: `2 (mean - mean*)`; away from the bounds `mean* = mean + step_size (y - mean)`
    * scale update: `(std - std*) std` on the log-variance
    * stops the gradient through the targets and the reference

    The prediction, too, passes through the projection, as in the authors' configurations. With one
    target per input a prediction outside the region therefore receives no gradient until its
    reference is refreshed. `reference=jax.lax.stop_gradient(dist)` is the authors' variant without
    stored references, in which that cannot happen.

    Args:
        dist: the predicted Gaussian.
        targets: observed values, exactly the shape of the predictions.
        reference: the Gaussian that each prediction must stay near, the same shape as `dist`.
        where: boolean; elements that are False count neither in the value, which is 0 there, nor in
            the gradient. Their targets may be nan.
        weights: importance of each element, a factor on its loss.
        step_size: share of the way to the observed value, per point (not divided by the batch
            size).
        mean_bound: largest `((mean - reference mean) / reference std)^2`; `inf` for none.
        scale_bound: largest `(std / reference std - 1)^2`; `inf` for none.
        scale_factor: 2 is the natural gradient, 1 halves the step of the scale.
        truncated: see `natural_target`.

    Returns:
        One value per element. The authors sum it over the batch.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> reference = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> def loss(mean):
        ...     dist = Gaussian(mean, jnp.zeros(2))
        ...     return trustable(dist, jnp.ones(2), reference=reference, step_size=0.25).sum()
        >>> jax.grad(loss)(jnp.zeros(2))
        Array([-0.5, -0.5], dtype=float32)

    Reference:
        Megerle et al., Stable optimization of Gaussian likelihoods, 2023, the scalar case.
    """
    check_gaussian("dist", dist, "trustable")
    check_reference(reference, dist)
    if where is not None:
        reference = jax.tree.map(lambda leaf: jnp.where(where, leaf, 0), reference)
    bounds = {"mean_bound": mean_bound, "scale_bound": scale_bound}
    step = {"step_size": step_size, "scale_factor": scale_factor, "truncated": truncated}

    def loss(dist: Gaussian, targets: Array) -> Array:
        near = project(dist, reference, **bounds)
        goal = project(natural_target(near, targets, **step), reference, **bounds)
        goal = lax.stop_gradient(goal)
        return jnp.square(near.mean - goal.mean) + jnp.square(near.std - goal.std)

    return per_element(loss, dist, targets, where, weights)


def project(
    dist: Gaussian, reference: Gaussian, *, mean_bound: chex.Numeric, scale_bound: chex.Numeric
) -> Gaussian:
    """The nearest Gaussian whose mean and scale both lie in the trust region of `reference`.

    The region bounds the two parts of the Wasserstein distance, in units of the reference:

        ((mean - reference.mean) / reference.std)^2 <= mean_bound
        (std / reference.std - 1)^2 <= scale_bound

    Args:
        dist: the Gaussian to project.
        reference: the centre of the region; no gradient flows to it.
        mean_bound: bound on the first part, `inf` for none.
        scale_bound: bound on the second, `inf` for none.

    Returns:
        The projection; its derivative is 0 where a bound is active.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> far = Gaussian.from_std(jnp.array([5.0]), jnp.array([9.0]))
        >>> unit = Gaussian(jnp.zeros(1), jnp.zeros(1))
        >>> near = project(far, unit, mean_bound=1.0, scale_bound=0.25)
        >>> float(near.mean[0]), round(float(near.std[0]), 4)
        (1.0, 1.5)
    """
    reference = lax.stop_gradient(reference)
    width = reference.std * jnp.sqrt(jnp.asarray(mean_bound, reference.mean.dtype))
    mean = jnp.clip(dist.mean, reference.mean - width, reference.mean + width)
    # Clipped as a logarithm: a ratio of scales may overflow.
    margin = jnp.sqrt(jnp.asarray(scale_bound, reference.log_variance.dtype))
    lowest, highest = 2 * jnp.log1p(-jnp.minimum(margin, 1)), 2 * jnp.log1p(margin)
    change = jnp.clip(dist.log_variance - reference.log_variance, lowest, highest)
    return Gaussian(mean, reference.log_variance + change)


def natural_target(
    dist: Gaussian,
    targets: Array,
    *,
    step_size: chex.Numeric,
    scale_factor: float = 2.0,
    truncated: bool = True,
) -> Gaussian:
    """Where one natural-gradient step on the NLL leads, in coordinates local to each point.

        mean* = mean + step_size (targets - mean)
        std* = std E(u)   with   u = step_size (scale_factor / 4) (z^2 - 1)

    Args:
        dist: where the step starts.
        targets: observed values, exactly the shape of the predictions.
        step_size: length of the step; 1 moves the mean onto the observed value.
        scale_factor: 2 is the natural gradient, 1 halves the step of the scale.
        truncated: whether `E(u)` is `1 + u + u^2/2`, as the authors use, or `exp(u)`.

    Returns:
        The Gaussian after the step.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> start = Gaussian(jnp.zeros(1), jnp.zeros(1))
        >>> natural_target(start, jnp.array([3.0]), step_size=0.5).mean
        Array([1.5], dtype=float32)
    """
    z = dist.standardize(targets)
    step_size = jnp.asarray(step_size, z.dtype)
    exponent = 0.25 * scale_factor * step_size * (jnp.square(z) - 1)
    change = jnp.log1p(exponent + 0.5 * jnp.square(exponent)) if truncated else exponent
    # In two halves: the exponential alone overflows where the product does not.
    half = jnp.exp(0.25 * dist.log_variance)
    mean = dist.mean + step_size * z * half * half
    return Gaussian(mean, dist.log_variance + 2 * change)


def init_references(predictions: Gaussian) -> Gaussian:
    """The first references: the predictions for all training points, as constants.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> init_references(Gaussian(jnp.zeros(2), jnp.zeros(2))).mean
        Array([0., 0.], dtype=float32)
    """
    check_gaussian("predictions", predictions, "trustable")
    return lax.stop_gradient(predictions)


def gather_references(references: Gaussian, indices: Array) -> Gaussian:
    """The references of one batch, from the positions of its points in the training set.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> references = Gaussian(jnp.arange(4.0), jnp.zeros(4))
        >>> gather_references(references, jnp.array([3, 1])).mean
        Array([3., 1.], dtype=float32)
    """
    return jax.tree.map(lambda leaf: jnp.take(leaf, indices, axis=0), references)


def refresh_references(
    references: Gaussian,
    predictions: Gaussian,
    *,
    mean_bound: chex.Numeric = 0.1,
    scale_bound: chex.Numeric = 0.01,
) -> Gaussian:
    """The references of the next epoch: current predictions, projected against the last ones.

    Args:
        references: those of the epoch that ended.
        predictions: the network's predictions for all training points, in the same order.
        mean_bound: see `trustable`.
        scale_bound: see `trustable`.

    Returns:
        Constants of the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> references = init_references(Gaussian(jnp.zeros(2), jnp.zeros(2)))
        >>> predictions = Gaussian(jnp.array([0.1, 9.0]), jnp.zeros(2))
        >>> refresh_references(references, predictions, mean_bound=0.5).mean.round(1)
        Array([0.1, 0.7], dtype=float32)
    """
    check_gaussian("predictions", predictions, "trustable")
    check_reference(references, predictions)
    bounds = {"mean_bound": mean_bound, "scale_bound": scale_bound}
    return lax.stop_gradient(project(predictions, references, **bounds))
