"""The ready recipe: Fisher8 gradients, momentum, the KL radius and a decay over the budget."""

import jax
import jax.numpy as jnp
import optax

from fisher8_jax._checks import check_count, check_number, check_positive
from fisher8_jax._numerics import AxisName
from fisher8_jax.transforms._kl_radius import scale_by_kl_radius

# Chosen on four UCI sets, at 100 steps and at 100 epochs: a short budget wants long steps, a long
# one a bound on how far the predictions wander in all.
LARGEST_RADIUS = 0.3
TOTAL_DIVERGENCE = 200.0


def default_max_kl(num_steps: int) -> float:
    """The recipe's radius: 0.3 nats, or less where the whole budget would move 200 nats.

    The radius falls with `(1 - t / num_steps)^2`, so all steps together move
    `max_kl * num_steps / 3`.

    Example:
        >>> default_max_kl(100), default_max_kl(20_000)
        (0.3, 0.03)
    """
    return min(LARGEST_RADIUS, 3 * TOTAL_DIVERGENCE / num_steps)


def fisher8_optimizer(
    num_steps: int,
    *,
    max_kl: float | None = None,
    momentum: float = 0.9,
    second_moment: float | None = None,
    exact: bool = False,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Nesterov momentum whose steps have a KL radius that falls to 0 over the budget.

        step(t) = (1 - t / num_steps) * sqrt(max_kl / q) * momentum direction

    There is no learning rate: the number of steps is all that must be given. The gradient is that
    of a loss behind `fisher8`, but any gradient will do. `update` needs `predict`, see
    `scale_by_kl_radius`. A gradient that is not finite counts as zero, so it does not spoil the
    momentum.

    Args:
        num_steps: how many updates will be made; the steps end at 0 there.
        max_kl: the divergence by which the first step moves the predictions, in nats; by default
            `min(0.3, 600 / num_steps)`, see `default_max_kl`.
        momentum: the decay of the gradients' running sum; 0 for none.
        second_moment: the decay of a running mean of squared gradients, by whose root every
            parameter's momentum is divided before the radius, as in Adam; None for none. It pays
            where layers or outputs have gradients of very different sizes. 0.99 is a good value.
        exact: see `scale_by_kl_radius`.
        axis_name: see `scale_by_kl_radius`.

    Returns:
        An Optax optimiser; its readouts are those of `KLRadiusState`.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian, fisher8_nll
        >>> from fisher8_jax.transforms import fisher8_optimizer
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
    num_steps = check_count("num_steps", num_steps)
    check_number("momentum", momentum, at_least=0, below=1)
    if second_moment is not None:
        check_number("second_moment", second_moment, at_least=0, below=1)
    max_kl = default_max_kl(num_steps) if max_kl is None else max_kl
    check_positive("max_kl", max_kl)
    # The step is the root of the radius, so a linear decay of the step is a squared one here.
    radius = optax.polynomial_schedule(max_kl, 0.0, power=2, transition_steps=num_steps)
    return descend_within(
        scale_by_kl_radius(radius, exact=exact, axis_name=axis_name), momentum, second_moment
    )


def descend_within(
    radius: optax.GradientTransformationExtraArgs, momentum: float, second_moment: float | None
) -> optax.GradientTransformationExtraArgs:
    """The recipe in front of any radius, whatever its schedule: guard, direction, radius.

    Args:
        radius: what sets the length of the step, for instance `scale_by_kl_radius` with a schedule
            of your own.
        momentum: see `fisher8_optimizer`.
        second_moment: see `fisher8_optimizer`.

    Returns:
        An Optax optimiser; `update` takes what `radius` takes.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.transforms import descend_within, scale_by_kl_radius
        >>> optimizer = descend_within(scale_by_kl_radius(0.02), 0.9, None)
        >>> params, predict = jnp.zeros(2), lambda mean: Gaussian(mean, jnp.zeros(2))
        >>> state = optimizer.init(params)
        >>> updates, _ = optimizer.update(jnp.ones(2), state, params, predict=predict)
        >>> updates.round(3)
        Array([-0.2, -0.2], dtype=float32)
    """
    return optax.chain(
        optax.stateless(zero_if_not_finite),
        _direction(momentum, second_moment),
        optax.scale(-1.0),
        radius,
    )


def _direction(momentum: float, second_moment: float | None) -> optax.GradientTransformation:
    if second_moment is not None:
        return optax.scale_by_adam(b1=momentum, b2=second_moment, nesterov=bool(momentum))
    return optax.trace(decay=momentum, nesterov=True) if momentum else optax.identity()


def zero_if_not_finite(gradients: optax.Updates, params: optax.Params | None) -> optax.Updates:
    """Zeros for all gradients if any of them is not finite."""
    del params
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradients)]
    is_finite = jnp.all(jnp.stack(finite)) if finite else jnp.array(True)
    return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), gradients)
