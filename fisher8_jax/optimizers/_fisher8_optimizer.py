"""The default optimizer: Fisher8 gradients, momentum, the KL radius and a decay over the budget.

The radius sets how far a step moves the predictions. It is no bound on the parameters: where
hidden units die, the predictions respond less, the radius lengthens the step, and more units die,
until the network predicts a constant. Noise makes it worse, since a radius moves as far along noise
as along a gradient, and momentum gives the noise a direction. So this optimizer protects hidden
units in two ways. The shared component of a unit's weight update is shrunk, see
`_shared_updates.py`. And it bounds how far the parameters move in units of their size: loosely
enough for a real gradient early on, and falling so that a random walk stays near.
"""

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.checks import check_number, check_positive
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.optimizers._descent import decay_schedule, descend
from fisher8_jax.optimizers._kl_radius import scale_by_kl_radius
from fisher8_jax.optimizers._radius_checks import check_steps

# Chosen on four UCI sets, at 100 steps and at 100 epochs: a short budget wants long steps, a long
# one a bound on how far the predictions wander in all.
LARGEST_RADIUS = 0.3
TOTAL_DIVERGENCE = 200.0
LARGEST_CHANGE = 0.3


def default_max_kl(num_steps: int | Array) -> float | Array:
    """The default radius: 0.3 nats, or less where the whole budget would move 200 nats.

    The radius falls with `(1 - t / num_steps)^2`, so all steps together move at most
    `max_kl * num_steps / 3`.

    Example:
        >>> default_max_kl(100), default_max_kl(20_000)
        (0.3, 0.03)
    """
    return bounded_radius(num_steps, LARGEST_RADIUS, TOTAL_DIVERGENCE)


def default_max_change(
    count: chex.Numeric, *, largest: chex.Numeric = LARGEST_CHANGE
) -> chex.Numeric:
    """The default bound on the relative change of parameters: three tenths at first, then less.

    It falls with the root of the number of steps, so that a random walk, whose squares add up,
    gets hardly further in a long training than in a short one.

    Args:
        count: how many updates were made before.
        largest: the bound on the first one.

    Example:
        >>> from fisher8_jax.optimizers import default_max_change
        >>> [float(default_max_change(count)) for count in (0, 99, 9999)]
        [0.3, 0.03, 0.003]
    """
    return largest / (1 + count) ** 0.5


def fisher8_optimizer(
    num_steps: int | Array,
    *,
    max_kl: float | Array | optax.Schedule | None = None,
    max_change: float | Array | optax.Schedule | None = default_max_change,
    momentum: float | Array = 0.9,
    second_moment: float | Array | None = 0.99,
    exact: bool = False,
    measure_every: int | Array | None = None,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Nesterov's Adam whose steps have a KL radius that falls to 0 over the budget.

        step(t) = min((1 - t / num_steps) * sqrt(max_kl / q), max_change / change) * direction

    `q` is the KL divergence by which the direction moves the predictions, `change` the largest
    part of its own size by which it moves an array of the parameters. In the direction
    the shared component of hidden units' weight updates is shrunk, see `shrink_shared_updates`.
    There is no learning rate: the number of steps is all that must be given. The gradient is that
    of a loss behind `fisher8`, but any gradient will do. `update` needs `predict`, see
    `scale_by_kl_radius`. A gradient that is not finite counts as zero, so it does not spoil the
    momentum.

    Args:
        num_steps: how many updates will be made; the steps end at 0 there.
        max_kl: the divergence by which the first step moves the predictions, in nats; by default
            `min(0.3, 600 / num_steps)`, see `default_max_kl`. An Optax schedule replaces the decay.
        max_change: the part of its own size by which a step may at most move any array of the
            parameters, a number or an Optax schedule; by default `0.3 / sqrt(n)` at the n-th step,
            see `default_max_change`. None leaves hidden units unprotected: no bound, and the
            shared component of their updates at full length, which kills ReLU networks on noisy
            data.
        momentum: the decay of the gradients' running sum; 0 for none.
        second_moment: the decay of a running mean of squared gradients, by whose root every
            parameter's momentum is divided before the radius, as in Adam; None for none.
        exact, axis_name: see `scale_by_kl_radius`.
        measure_every: see `scale_by_kl_radius`; 8 makes a step much cheaper.

    Returns:
        An Optax optimizer whose state holds a `KLRadiusState`.

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
    radius = scale_by_kl_radius(
        falling_radius(default_max_kl(num_steps) if max_kl is None else max_kl, num_steps),
        max_change=max_change,
        exact=exact,
        measure_every=measure_every,
        axis_name=axis_name,
    )
    return descend(
        radius,
        momentum=momentum,
        second_moment=second_moment,
        protect_units=max_change is not None,
    )


def bounded_radius(num_steps: int | Array, largest: float, total: float) -> float | Array:
    """The largest radius, or less where all steps together would move more than `total`."""
    if isinstance(num_steps, jax.Array):
        return jnp.minimum(largest, 3 * total / num_steps)
    return min(largest, 3 * total / num_steps)


def falling_radius(
    max_kl: float | Array | optax.Schedule, num_steps: int | Array
) -> optax.Schedule:
    """A number falls to 0 at `num_steps`, so that the step falls linearly; a schedule stays."""
    if callable(max_kl):
        return max_kl
    check_positive("max_kl", max_kl)
    return decay_schedule(max_kl, num_steps, power=2)
