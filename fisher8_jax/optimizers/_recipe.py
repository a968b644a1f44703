"""The ready recipe: Fisher8 gradients, momentum, the KL radius and a decay over the budget.

The radius sets how far a step moves the predictions. It is no bound on the parameters: where
hidden units die, the predictions answer less, the radius lengthens the step, and more units die,
until the network predicts a constant. Noise makes it worse, since a radius moves as far along noise
as along a gradient, and momentum gives the noise a direction. So the recipe protects hidden units
in two ways. What all weights of a unit do together is made shorter, see `_common_moves.py`. And it
bounds how far the parameters move in units of their size: loosely enough for a real gradient early
on, and falling so that a walk at random stays near.
"""

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.checks import check_number, check_positive
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.optimizers._checks import (
    check_parameters,
    check_steps,
    check_trees,
    refuse_multi_steps,
)
from fisher8_jax.optimizers._common_moves import shorten_common_moves
from fisher8_jax.optimizers._kl_radius import scale_by_kl_radius

# Chosen on four UCI sets, at 100 steps and at 100 epochs: a short budget wants long steps, a long
# one a bound on how far the predictions wander in all.
LARGEST_RADIUS = 0.3
TOTAL_DIVERGENCE = 200.0
LARGEST_CHANGE = 0.3


def default_max_kl(num_steps: int | Array) -> float | Array:
    """The recipe's radius: 0.3 nats, or less where the whole budget would move 200 nats.

    The radius falls with `(1 - t / num_steps)^2`, so all steps together move at most
    `max_kl * num_steps / 3`.

    Example:
        >>> default_max_kl(100), default_max_kl(20_000)
        (0.3, 0.03)
    """
    return bounded_radius(num_steps, LARGEST_RADIUS, TOTAL_DIVERGENCE)


def default_max_change(count: chex.Numeric) -> chex.Numeric:
    """The recipe's bound on the relative change of parameters: three tenths at first, then less.

    It falls with the root of the number of steps, so that a walk at random, whose squares add up,
    hardly gets further in a long training than in a short one.

    Args:
        count: how many updates were made before.

    Example:
        >>> from fisher8_jax.optimizers import default_max_change
        >>> [float(default_max_change(count)) for count in (0, 99, 9999)]
        [0.3, 0.03, 0.003]
    """
    return LARGEST_CHANGE / (1 + count) ** 0.5


def fisher8_optimizer(
    num_steps: int | Array,
    *,
    max_kl: float | Array | None = None,
    max_change: float | Array | optax.Schedule | None = default_max_change,
    momentum: float | Array = 0.9,
    second_moment: float | Array | None = 0.99,
    exact: bool = False,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Nesterov's Adam whose steps have a KL radius that falls to 0 over the budget.

        step(t) = min((1 - t / num_steps) * sqrt(max_kl / q), max_change / change) * direction

    `q` is the KL divergence by which the direction moves the predictions, `change` the largest
    part of its own size by which it moves an array of the parameters. In the direction the common
    moves of hidden units' weights are shortened, see `shorten_common_moves`.
    There is no learning rate: the number of steps is all that must be given. The gradient is that
    of a loss behind `fisher8`, but any gradient will do. `update` needs `predict`, see
    `scale_by_kl_radius`. A gradient that is not finite counts as zero, so it does not spoil the
    momentum.

    Args:
        num_steps: how many updates will be made; the steps end at 0 there.
        max_kl: the divergence by which the first step moves the predictions, in nats; by default
            `min(0.3, 600 / num_steps)`, see `default_max_kl`.
        max_change: the part of its own size by which a step may at most move any array of the
            parameters, a number or an Optax schedule; by default `0.3 / sqrt(n)` at the n-th step,
            see `default_max_change`. None leaves hidden units unprotected: no bound, and common
            moves of their weights at full length, which ReLU networks on noisy data do not survive.
        momentum: the decay of the gradients' running sum; 0 for none.
        second_moment: the decay of a running mean of squared gradients, by whose root every
            parameter's momentum is divided before the radius, as in Adam; None for none.
        exact: see `scale_by_kl_radius`.
        axis_name: see `scale_by_kl_radius`.

    Returns:
        An Optax optimiser; its readouts are those of `KLRadiusState`.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian, fisher8_nll
        >>> from fisher8_jax.optimizers import fisher8_optimizer
        >>> targets = jnp.array([1.0, 2.0, 3.0])
        >>> def predict(params):
        ...     return Gaussian(*jnp.broadcast_to(params[:, None], (2, 3)))
        >>> optimizer = fisher8_optimizer(num_steps=200)
        >>> params = jnp.zeros(2)
        >>> state = optimizer.init(params)
        >>> def step(_, carry):
        ...     params, state = carry
        ...     grads = jax.grad(lambda p: fisher8_nll(predict(p), targets).mean())(params)
        ...     updates, state = optimizer.update(grads, state, params, predict=predict)
        ...     return optax.apply_updates(params, updates), state
        >>> params, state = jax.lax.fori_loop(0, 200, step, (params, state))
        >>> print(f"mean {params[0]:.1f}, variance {jnp.exp(params[1]):.1f}")
        mean 2.0, variance 0.7
    """
    check_steps("num_steps", num_steps)
    check_number("momentum", momentum, at_least=0, below=1)
    if second_moment is not None:
        check_number("second_moment", second_moment, at_least=0, below=1)
    max_kl = default_max_kl(num_steps) if max_kl is None else max_kl
    check_positive("max_kl", max_kl)
    radius = scale_by_kl_radius(
        falling_radius(max_kl, num_steps), max_change=max_change, exact=exact, axis_name=axis_name
    )
    protect = max_change is not None
    return descend_within(radius, momentum, second_moment, protect_units=protect)


def descend_within(
    radius: optax.GradientTransformationExtraArgs,
    momentum: float | Array,
    second_moment: float | Array | None,
    *,
    protect_units: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """The recipe in front of any radius, whatever its schedule: guard, direction, radius.

    Args:
        radius: what sets the length of the step, for instance `scale_by_kl_radius` with a schedule
            of your own.
        momentum: see `fisher8_optimizer`.
        second_moment: see `fisher8_optimizer`.
        protect_units: whether to shorten the common moves of hidden units' weights, see
            `shorten_common_moves`.

    Returns:
        An Optax optimiser; `update` takes what `radius` takes.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.optimizers import descend_within, scale_by_kl_radius
        >>> optimizer = descend_within(scale_by_kl_radius(0.02), 0.9, None)
        >>> params, predict = jnp.zeros(2), lambda mean: Gaussian(mean, jnp.zeros(2))
        >>> state = optimizer.init(params)
        >>> updates, _ = optimizer.update(jnp.ones(2), state, params, predict=predict)
        >>> updates.round(3)
        Array([-0.2, -0.2], dtype=float32)
    """
    return optax.chain(
        guard(),
        _direction(momentum, second_moment),
        shorten_common_moves() if protect_units else optax.identity(),
        optax.scale(-1.0),
        radius,
    )


def _direction(
    momentum: float | Array, second_moment: float | Array | None
) -> optax.GradientTransformation:
    # An array may change between steps, as under `optax.inject_hyperparams`: it is never "none".
    has_momentum = isinstance(momentum, jax.Array) or bool(momentum)
    if second_moment is not None:
        return optax.scale_by_adam(b1=momentum, b2=second_moment, nesterov=has_momentum)
    return optax.trace(decay=momentum, nesterov=True) if has_momentum else optax.identity()


def bounded_radius(num_steps: int | Array, largest: float, total: float) -> float | Array:
    """The largest radius, or less where all steps together would move more than `total`."""
    if isinstance(num_steps, jax.Array):
        return jnp.minimum(largest, 3 * total / num_steps)
    return min(largest, 3 * total / num_steps)


def falling_radius(max_kl: float | Array, num_steps: int | Array) -> optax.Schedule:
    """From `max_kl` to exactly 0 at `num_steps` and after it.

    The step is the root of the radius, so a linear decay of the step is a squared one here.
    """

    def radius(count: chex.Numeric) -> chex.Numeric:
        return max_kl * jnp.maximum(1 - count / num_steps, 0) ** 2

    return radius


def guard(*, checks_numbers: bool = True) -> optax.GradientTransformation:
    """The first link of a recipe: checks what it is given, and makes bad gradients zero.

    Args:
        checks_numbers: False leaves gradients that are not finite to the radius, which drops the
            step; enough where nothing in between remembers them.
    """

    def init(params: optax.Params) -> optax.EmptyState:
        refuse_multi_steps()
        check_parameters(params)
        return optax.EmptyState()

    def update(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        if params is not None:
            check_trees(updates, params)
        return zero_if_not_finite(updates) if checks_numbers else updates, state

    return optax.GradientTransformation(init, update)


def zero_if_not_finite(gradients: optax.Updates) -> optax.Updates:
    """Zeros for all gradients if any of them is not finite."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradients)]
    is_finite = jnp.all(jnp.stack(finite)) if finite else jnp.array(True)
    return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), gradients)
