"""The default optimizer for parameter-space natural gradients: a decaying radius, an average."""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.checks import check_number
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.optimizers._average import track_average
from fisher8_jax.optimizers._descent import guard
from fisher8_jax.optimizers._fisher8_optimizer import bounded_radius, falling_radius
from fisher8_jax.optimizers._kl_radius import scale_by_kl_radius
from fisher8_jax.optimizers._radius_checks import check_steps

# Chosen with a damping of 0.3 on four UCI sets (Yacht, Energy, Kin8nm, Wine), by held-out NLL after
# 100 and 500 steps. Longer budgets are bound to move no further in all than 500 steps do.
LARGEST_RADIUS = 1.0
TOTAL_DIVERGENCE = 500.0 / 3
_WITH_MOMENTUM = 0.1


def network_max_kl(num_steps: int | Array, *, has_momentum: bool = False) -> float | Array:
    """The default radius: 1 nat, or less where the whole budget would move 167 nats.

    Args:
        num_steps: how many updates will be made.
        has_momentum: True for a tenth of it, because momentum multiplies steps.

    Example:
        >>> from fisher8_jax.optimizers import network_max_kl
        >>> network_max_kl(100), network_max_kl(2000)
        (1.0, 0.25)
    """
    check_steps("num_steps", num_steps)
    radius = bounded_radius(num_steps, LARGEST_RADIUS, TOTAL_DIVERGENCE)
    return radius * _WITH_MOMENTUM if has_momentum else radius


def network_optimizer(
    num_steps: int | Array,
    *,
    max_kl: float | Array | optax.Schedule | None = None,
    mode: Literal["target", "cap"] = "target",
    average: float | None = 0.1,
    exact: bool = False,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Steps along the natural gradient of the whole network, with a radius that falls to 0.

        step(t) = (1 - t / num_steps) * sqrt(max_kl / q) * natural gradient

    The counterpart of `fisher8_optimizer` for gradients of `network_gradient`, or behind
    `precondition`. There is no learning rate: the number of steps is all that
    must be given. A gradient that is not finite counts as zero.

    Its state keeps an average of the parameters over the last tenth of the steps,
    `optax.tree_utils.tree_get(state, "average")`. Every batch pulls the parameters to its own
    noise, which the average undoes; but where they still move at the end it is far worse than they
    are. Held-out rows tell which of the two to predict with.

    Args:
        num_steps: how many updates will be made; the steps end at 0 there.
        max_kl: the divergence by which the first step moves the predictions, in nats; by default
            `network_max_kl(num_steps)`. An Optax schedule replaces the decay.
        mode: 'target' makes every step as long as the radius says, which was the better choice on
            noisy tables; 'cap' never lengthens the natural gradient, whose own length already leads
            to the optimum of a quadratic model: the choice for smooth functions with hardly any
            noise, together with a radius of about 0.1.
        average: the part of the budget that the average of the parameters looks back; None keeps
            none, for instance where a training loop keeps its own. See `track_average`.
        exact, axis_name: see `scale_by_kl_radius`; `exact` needs `predict`.

    Returns:
        An Optax optimizer. Its `update` takes `step_kl` from `network_gradient`, or `predict`.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> from fisher8_jax.optimizers import network_optimizer
        >>> def predict_one(params, x):
        ...     return Gaussian(jnp.sin(params["w"] * x) * params["a"], params["log_variance"])
        >>> x = jnp.linspace(0.0, 3.0, 32)
        >>> y = 2.0 * jnp.sin(1.5 * x)
        >>> optimizer = network_optimizer(num_steps=50)
        >>> params = {"w": jnp.ones(()), "a": jnp.ones(()), "log_variance": jnp.zeros(())}
        >>> state = optimizer.init(params)
        >>> def step(_, carry):
        ...     params, state = carry
        ...     step = network_gradient(predict_one, params, x, y)
        ...     updates, state = optimizer.update(
        ...         step.gradient, state, params, step_kl=step.step_kl
        ...     )
        ...     return optax.apply_updates(params, updates), state
        >>> params, state = jax.lax.fori_loop(0, 50, step, (params, state))
        >>> params = optax.tree_utils.tree_get(state, "average")
        >>> print(f"{params['a']:.1f} sin({params['w']:.1f} x)")
        2.0 sin(1.5 x)
    """
    check_steps("num_steps", num_steps)
    if max_kl is None:
        max_kl = network_max_kl(num_steps)
    if average is not None:
        check_number("average", average, at_least=0, below=1)
    chain = optax.chain(
        guard(checks_numbers=False),
        optax.scale(-1.0),
        scale_by_kl_radius(
            falling_radius(max_kl, num_steps), mode=mode, exact=exact, axis_name=axis_name
        ),
        optax.identity() if average is None else track_average(_horizon(average, num_steps)),
    )

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        **extra_args: object,
    ) -> tuple[optax.Updates, optax.OptState]:
        if all(extra_args.get(name) is None for name in ("step_kl", "predict")):
            raise ValueError(
                "`network_optimizer` needs `step_kl`, how far the gradient would move the "
                "predictions. With `step = network_gradient(...)` call `optimizer.update("
                "step.gradient, state, params, step_kl=step.step_kl)`. With the solver `Blocks` "
                "and behind `precondition` pass `predict=lambda p: network(p, inputs)` instead."
            )
        return chain.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(chain.init, update)


def _horizon(average: float, num_steps: int | Array) -> float | Array:
    """That part of the budget, at least one step."""
    if isinstance(num_steps, jax.Array):
        return jnp.maximum(average * num_steps, 1.0)
    return max(average * num_steps, 1.0)
