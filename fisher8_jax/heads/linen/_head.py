"""The head for Flax Linen, and a training state that forwards extra arguments."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self

import chex
import flax.linen as nn
import jax.numpy as jnp
import optax
from flax.training import train_state
from jax import Array

from fisher8_jax.heads._links import (
    Link,
    SomeFamily,
    check_link,
    corrected,
    flat_sizes,
    make_distribution,
    output_biases,
)


class DistributionHead(nn.Module, Generic[SomeFamily]):
    """From features to a predicted distribution, one linear layer per raw output.

    Fields and call are those of `heads.nnx.DistributionHead`, without `in_features` and `rngs`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax.heads.linen import DistributionHead
        >>> head = DistributionHead(target_shape=(2,))
        >>> features = jnp.ones((5, 7), jnp.bfloat16)
        >>> variables = head.init(jax.random.key(0), features)
        >>> dist = head.apply(variables, features)
        >>> dist.mean.shape, dist.mean.dtype
        ((5, 2), dtype('float32'))
    """

    link: str | Link[SomeFamily] = "log_variance"
    target_shape: tuple[int, ...] = ()
    stop_gradient: bool = False
    initial: Mapping[str, chex.Numeric] | None = None
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(
        self,
        features: Array,
        *,
        natural_gradient: bool = False,
        where: Array | None = None,
        axis: int | tuple[int, ...] = 0,
    ) -> SomeFamily:
        """The predicted distribution for each row, see `heads.nnx.DistributionHead`."""
        link = check_link(self.link)
        biases = output_biases(link, self.target_shape, self.initial)
        layers = {
            name: nn.Dense(
                size,
                param_dtype=jnp.float32,
                kernel_init=self.kernel_init,
                bias_init=nn.initializers.constant(biases[name]),
                name=name,
            )
            for name, size in flat_sizes(link, self.target_shape).items()
        }
        learned = {
            name: self.param(name, nn.initializers.constant(value), self.target_shape, jnp.float32)
            for name, value in link.learned
        }
        dist = make_distribution(
            link, self.target_shape, features, layers, learned, stop_gradient=self.stop_gradient
        )
        return corrected(dist, natural_gradient, axis, where)


_ARGUMENTS = ("predict", "where", "step_kl")


class TrainState(train_state.TrainState):
    """`flax.training.train_state.TrainState` whose `apply_gradients` forwards `predict`.

    The arguments `predict`, `where` and `step_kl` of `scale_by_kl_radius` go to the optimiser, all
    others replace fields, as in Flax. Everything else is Flax's.

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
