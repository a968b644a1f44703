"""Networks as the loop wants them, from plain functions and from Flax NNX."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax.families import Family
from fisher8_jax.training._step import Apply, Params, Variables


@dataclasses.dataclass(frozen=True)
class _Plain:
    predict: Callable[[Params, chex.ArrayTree], Family]

    def __call__(
        self,
        params: Params,
        variables: Variables,
        inputs: chex.ArrayTree,
        *,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Family, Variables]:
        return self.predict(params, inputs), variables


def plain_network(predict: Callable[[Params, chex.ArrayTree], Family]) -> Apply:
    """A network that is a pure function of parameters and inputs.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> network(2.0, None, jnp.ones(1))[0].mean
        Array([2.], dtype=float32)
    """
    return _Plain(predict)


@dataclasses.dataclass(frozen=True)
class _Nnx:
    graph: Any

    def __call__(
        self,
        params: Params,
        variables: Variables,
        inputs: chex.ArrayTree,
        *,
        key: Array | None = None,
        train: bool = False,
    ) -> tuple[Family, Variables]:
        from flax import nnx

        model = nnx.merge(self.graph, params, variables, copy=True)
        if train:
            model.train()
        else:
            model.eval()
        dist = model(inputs)
        return dist, nnx.state(model, nnx.Not(nnx.Param))


def nnx_network(model: Any) -> tuple[Apply, chex.ArrayTree, chex.ArrayTree]:
    """A Flax NNX module as a pure function, its parameters and its other variables.

    Dropout and batch normalisation work: the module's own random streams and running statistics are
    among the variables, and it is in training mode in training steps only.

    Args:
        model: called with the inputs it returns a distribution. It is not changed; give the trained
            parameters back to it by `nnx.update(model, params)`.

    Returns:
        `apply`, parameters and variables, for `fit`.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from fisher8_jax.heads.nnx import DistributionHead
        >>> apply, params, variables = nnx_network(DistributionHead(3, rngs=nnx.Rngs(0)))
        >>> apply(params, variables, jnp.ones((5, 3)))[0].batch_shape
        (5,)
    """
    # Imported here, because those who do not use Flax should not wait for it.
    from flax import nnx

    graph, params, *(variables,) = nnx.split(model, nnx.Param, ...)
    # Copies, because a later `nnx.update` of the module changes its variables in place.
    return _Nnx(graph), *jax.tree.map(jnp.copy, (params, variables))
