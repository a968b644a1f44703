"""What one step of the natural gradient hands to the next: its momentum."""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric

from fisher8_jax._internal.checks import check_number
from fisher8_jax._internal.numerics import all_finite


class GradientState(NamedTuple):
    """What `network_gradient` remembers from step to step; begin with `GradientState.zeros`.

    A running sum of natural gradients overshoots, since each of them goes the whole way. Here the
    solve knows the momentum and computes only what is missing to it. The sum is the exact solution
    of the damped problem whose damping pulls to the momentum instead of to zero.

    Attributes:
        momentum: the gradient of the last step, a tree like the parameters.
        decay: how much of it the next step begins with.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> from fisher8_jax.curvature import GradientState
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> params, x, y = jnp.ones(()), jnp.ones(3), jnp.zeros(3)
        >>> state = GradientState.zeros(params, momentum=0.9)
        >>> for _ in range(2):  # 1/2 at first: damping 1 stops half-way
        ...     step = network_gradient(predict_one, params, x, y, damping=1.0, state=state)
        ...     state = step.state
        >>> print(f"{step.gradient:.3f}")
        0.725

    Reference:
        Goldshlager, Abrahamsen and Lin, A Kaczmarz-inspired approach to accelerate the optimization
        of neural network wavefunctions (SPRING), 2024.
    """

    momentum: ArrayTree
    decay: Numeric

    @classmethod
    def zeros(cls, params: ArrayTree, *, momentum: Numeric) -> Self:
        """Before the first step.

        Args:
            params: the parameters.
            momentum: how much of a step the next one begins with, below 1.
        """
        check_number("momentum", momentum, at_least=0, below=1)
        return cls(jax.tree.map(jnp.zeros_like, params), jnp.asarray(momentum))

    def check(self, params: ArrayTree) -> Self:
        """Returns the state, or says why it does not belong to `params`."""
        if not isinstance(self, GradientState):
            raise TypeError(
                f"`state` must be a `GradientState`, got {type(self).__name__}. Begin with "
                "`GradientState.zeros(params, ...)` and hand on the `state` of every step."
            )
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (self.momentum, params)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "`state.momentum` must be a tree like `params`, with the same shapes, got "
                f"{shapes[0]} for {shapes[1]}. Begin with `GradientState.zeros(params, "
                "momentum=...)`."
            )
        return self

    def initial_step(self) -> ArrayTree:
        """The momentum that the next step begins with."""
        return jax.tree.map(lambda leaf: (self.decay * leaf).astype(leaf.dtype), self.momentum)

    def remember(self, gradient: ArrayTree) -> Self:
        """With `gradient` as the momentum; one that is not finite is forgotten."""
        finite = all_finite(gradient)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), gradient, self.momentum)
        return self._replace(momentum=kept)
