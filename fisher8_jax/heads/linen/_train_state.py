"""Linen's TrainState with a way for what the KL radius needs."""

import functools
from typing import Any, Self

import optax
from flax.training import train_state

_ARGUMENTS = ("predict", "where", "linearized", "step_kl")


class TrainState(train_state.TrainState):
    """`flax.training.train_state.TrainState` whose `apply_gradients` forwards `predict`.

    The arguments `predict`, `where`, `linearized` and `step_kl` of `scale_by_kl_radius` go to the
    optimiser, all others replace fields, as in Flax. Everything else is Flax's.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import fisher8_optimizer
        >>> from fisher8_jax.heads.linen import DistributionHead, TrainState
        >>> head, x, y = DistributionHead(), jnp.ones((4, 3)), jnp.arange(4.0)
        >>> state = TrainState.create(
        ...     apply_fn=head.apply,
        ...     params=head.init(jax.random.key(0), x),
        ...     tx=fisher8_optimizer(num_steps=100),
        ... )
        >>> def loss(params):
        ...     return state.apply_fn(params, x, natural_gradient=True).nll(y).mean()
        >>> grads = jax.grad(loss)(state.params)
        >>> state = state.apply_gradients(grads=grads, predict=lambda p: state.apply_fn(p, x))
        >>> int(state.step)
        1
    """

    def apply_gradients(self, *, grads: optax.Updates, **kwargs: Any) -> Self:
        """One step; see the class for the arguments."""
        extra = {name: kwargs.pop(name) for name in _ARGUMENTS if name in kwargs}
        update = functools.partial(self.tx.update, **extra)
        bound = self.replace(tx=optax.GradientTransformationExtraArgs(self.tx.init, update))
        moved = super(TrainState, bound).apply_gradients(grads=grads, **kwargs)
        return moved.replace(tx=kwargs.get("tx", self.tx))
