"""An average of the parameters over the last steps, kept in the state of the optimizer.

A network that can follow single training points drives their predicted variance towards 0, and a
few test points then ruin the mean NLL. The average cures that; it works under `vmap` and `scan`.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fisher8_jax._internal.checks import check_number
from fisher8_jax._internal.numerics import at_least_float32


class AverageState(NamedTuple):
    """The number of updates and the running average of the parameters after each of them.

    Attributes:
        count: updates so far.
        average: a tree like the parameters, in at least float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.optimizers import track_average
        >>> state = track_average(horizon=10).init({"bias": jnp.array(1.0)})
        >>> print(state.count, state.average["bias"])
        0 1.0
    """

    count: Array  # type: ignore[assignment]
    average: optax.Params

    @classmethod
    def start(cls, params: optax.Params) -> Self:
        """Before the first update."""
        # A copy, so that parameters and state may both be donated to a compiled step.
        average = jax.tree.map(lambda leaf: at_least_float32(jnp.array(leaf)), params)
        return cls(jnp.zeros((), jnp.int32), average)

    def add(self, params: optax.Params, horizon: float | Array) -> Self:
        """With the parameters after one more update; `horizon` is that of `track_average`."""
        count = optax.safe_increment(self.count)
        # The weight of the newest parameters: 1 at first, so that the start is forgotten at once.
        rate = 1 / jnp.asarray(horizon, jnp.float32)
        weight = rate / -jnp.expm1(count.astype(jnp.float32) * jnp.log1p(-rate))
        average = jax.tree.map(
            lambda old, new: old + weight.astype(old.dtype) * (new.astype(old.dtype) - old),
            self.average,
            params,
        )
        return type(self)(count, average)


def track_average(horizon: float | Array) -> optax.GradientTransformationExtraArgs:
    """Keeps an exponential average of the parameters in its state; updates pass unchanged.

        average = sum(decay^(t-i) * params_i) / sum(decay^(t-i)),  decay = 1 - 1 / horizon

    It must come after everything that changes the update, also after the KL radius. The average is
    kept in at least float32.

    Args:
        horizon: the number of updates that the average covers, at least 1.

    Returns:
        An Optax transformation; read it with `optax.tree_utils.tree_get(state, "average")`.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from fisher8_jax.optimizers import track_average
        >>> optimizer = optax.chain(optax.sgd(1.0), track_average(horizon=2))
        >>> params = jnp.array(0.0)
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     updates, state = optimizer.update(jnp.array(-3.0), state, params)
        ...     params = optax.apply_updates(params, updates)
        >>> print(params, optax.tree_utils.tree_get(state, "average"))  # (3/2 + 6) / (1/2 + 1)
        6.0 5.0

    Reference:
        Polyak and Juditsky 1992, with exponential weights.
    """
    check_number("horizon", horizon, at_least=1)

    def update(
        updates: optax.Updates,
        state: AverageState,
        params: optax.Params | None = None,
        **extra_args: object,
    ) -> tuple[optax.Updates, AverageState]:
        del extra_args
        if params is None:
            raise ValueError(
                "`track_average` needs `params`. Call `optimizer.update(grads, state, params)`."
            )
        return updates, state.add(optax.apply_updates(params, updates), horizon)

    return optax.GradientTransformationExtraArgs(AverageState.start, update)
