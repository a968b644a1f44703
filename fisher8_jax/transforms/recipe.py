"""The ready recipe: Fisher8 gradients, momentum, the KL radius and a decay over the budget."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fisher8_jax._checks import check_positive
from fisher8_jax._numerics import AxisName
from fisher8_jax.transforms._checks import check_momentum, check_steps
from fisher8_jax.transforms.kl_radius import scale_by_kl_radius


def fisher8_optimizer(
    num_steps: int,
    *,
    max_kl: float = 0.3,
    momentum: float = 0.9,
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
        max_kl: the divergence by which the first step moves the predictions, in nats.
        momentum: the decay of the gradients' running sum; 0 for none.
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
    check_steps("num_steps", num_steps)
    check_positive("max_kl", max_kl)
    check_momentum(momentum)
    # The step is the root of the radius, so a linear decay of the step is a squared one here.
    radius = optax.polynomial_schedule(max_kl, 0.0, power=2, transition_steps=num_steps)
    return optax.chain(
        optax.stateless(_zero_if_not_finite),
        optax.trace(decay=momentum, nesterov=True) if momentum else optax.identity(),
        optax.scale(-1.0),
        scale_by_kl_radius(radius, exact=exact, axis_name=axis_name),
    )


def _zero_if_not_finite(gradients: Any, params: Any) -> Any:
    del params
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradients)]
    is_finite = jnp.all(jnp.stack(finite)) if finite else jnp.array(True)
    return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), gradients)
