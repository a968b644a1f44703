"""What every preset is made of: a guard, a direction, a length, and a schedule that ends at 0."""

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.checks import check_parameters
from fisher8_jax._internal.numerics import all_finite
from fisher8_jax.optimizers._radius_checks import check_trees
from fisher8_jax.optimizers._shared_updates import shrink_shared_updates

# Where in the warm-up the first step stands: a step of length 0 would be wasted.
_FIRST_OF_WARM_UP = 0.02


def descend(
    length: optax.GradientTransformation,
    *,
    momentum: float | Array | None = None,
    second_moment: float | Array | None = None,
    protect_units: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """A step against the gradient: guard, direction, length.

    A gradient that is not finite counts as zero, so it does not spoil the momentum.

    Args:
        length: what sets the length of the step, for instance `scale_by_kl_radius` or
            `optax.scale_by_schedule`.
        momentum: the decay of the gradients' running mean, with Nesterov's look ahead; None or 0
            for none.
        second_moment: the decay of a running mean of squared gradients, by whose root every
            parameter's momentum is divided, as in Adam; None for none.
        protect_units: whether to shrink the shared component of hidden units' weight updates, see
            `shrink_shared_updates`.

    Returns:
        An Optax optimizer; `update` takes what `length` takes.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.optimizers import descend, scale_by_kl_radius
        >>> optimizer = descend(scale_by_kl_radius(0.02), momentum=0.9)
        >>> params, predict = jnp.zeros(2), lambda mean: Gaussian(mean, jnp.zeros(2))
        >>> state = optimizer.init(params)
        >>> updates, _ = optimizer.update(jnp.ones(2), state, params, predict=predict)
        >>> updates.round(3)
        Array([-0.2, -0.2], dtype=float32)
    """
    return optax.chain(
        guard(),
        _direction(momentum, second_moment),
        shrink_shared_updates() if protect_units else optax.identity(),
        optax.scale(-1.0),
        optax.with_extra_args_support(length),
    )


def decay_schedule(
    peak: chex.Numeric,
    num_steps: chex.Numeric,
    *,
    power: int | float = 1,
    warm_up: chex.Numeric | None = None,
) -> optax.Schedule:
    """From `peak` to exactly 0 at `num_steps` and after it.

        peak * (1 - t / num_steps)^power

    Args:
        peak: the largest value.
        num_steps: where 0 is reached; may be traced.
        power: 1 falls linearly, 0 stays at `peak`. The step is the root of a KL radius, so a radius
            falls with 2 where the step falls linearly.
        warm_up: the fraction of the steps in which the value first grows to its peak; None begins
            there.

    Example:
        >>> from fisher8_jax.optimizers import decay_schedule
        >>> [float(decay_schedule(0.5, 4)(count)) for count in (0, 2, 4)]
        [0.5, 0.25, 0.0]
    """

    def schedule(count: chex.Numeric) -> Array:
        done = count / num_steps
        part = 1 - done
        if warm_up is not None:
            growth = (done + _FIRST_OF_WARM_UP * warm_up) / warm_up
            part = jnp.minimum(growth, part / (1 - warm_up))
        # An integer power is a product: exact, and the same in every program.
        exponent = int(power) if power == int(power) else power
        return peak * jnp.clip(part, 0, 1) ** exponent

    return schedule


def guard(*, checks_numbers: bool = True) -> optax.GradientTransformation:
    """The first link of a preset: checks its input and sets bad gradients to zero.

    Args:
        checks_numbers: False leaves gradients that are not finite to the radius, which drops the
            step; enough where nothing in between remembers them.
    """

    def init(params: optax.Params) -> optax.EmptyState:
        check_parameters("params", params)
        return optax.EmptyState()

    def update(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        if params is not None:
            check_trees(updates, params)
        return _zero_if_not_finite(updates) if checks_numbers else updates, state

    return optax.GradientTransformation(init, update)


def _direction(
    momentum: float | Array | None, second_moment: float | Array | None
) -> optax.GradientTransformation:
    # An array may change between steps, as under `optax.inject_hyperparams`: it is never "none".
    has_momentum = isinstance(momentum, jax.Array) or bool(momentum)
    if second_moment is not None:
        first = momentum if has_momentum else 0.0
        return optax.scale_by_adam(b1=first, b2=second_moment, nesterov=has_momentum)
    return optax.trace(decay=momentum, nesterov=True) if has_momentum else optax.identity()


def _zero_if_not_finite(gradients: optax.Updates) -> optax.Updates:
    """Zeros for all gradients if any of them is not finite."""
    is_finite = all_finite(gradients)
    return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), gradients)
