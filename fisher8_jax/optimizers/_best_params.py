"""The best parameters on held-out data, as a value that a training loop carries along."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax import Array


class BestParams(NamedTuple):
    """The parameters with the lowest score so far, and that score.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.optimizers import BestParams
        >>> best = BestParams.start(jnp.array(0.0))
        >>> for params, held_out_nll in [(1.0, 0.7), (2.0, 0.5), (3.0, jnp.nan), (4.0, 0.6)]:
        ...     best = best.keep(jnp.array(params), held_out_nll)
        >>> print(best.params, best.score)
        2.0 0.5
    """

    params: optax.Params
    score: Array

    @classmethod
    def start(cls, params: optax.Params) -> "BestParams":
        """Nothing better than `params` is known yet; their score counts as infinite."""
        return cls(params, jnp.full((), jnp.inf, jnp.float32))

    def keep(self, params: optax.Params, score: chex.Numeric) -> "BestParams":
        """`params` if their `score` (a held-out NLL, lower is better) is below the best one.

        A score that is not finite never wins.
        """
        score = jnp.asarray(score, jnp.float32)
        if score.ndim:
            raise ValueError(
                f"`score` must be a scalar, got shape {score.shape}. Use `nll.mean()`."
            )
        is_better = score < self.score
        params = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), params, self.params)
        return BestParams(params, jnp.where(is_better, score, self.score))
