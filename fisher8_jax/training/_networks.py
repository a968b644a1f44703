"""How a network is called, and Flax NNX modules as pure functions.

A network without variables is a function `(params, inputs) -> distribution`. One with variables
(running statistics, random streams of dropout) takes and returns them: `(params, variables, inputs,
*, key, train) -> (distribution, variables)`. Which of the two a network is says whether variables
were given. It must be hashable, as functions are, so that compiled programs are found again.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import chex
import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_parameters, check_pure_function
from fisher8_jax.families import Family
from fisher8_jax.training._data import Params, Variables

Network: TypeAlias = Callable[..., Any]


def check_network(network: object, params: object, variables: object) -> None:
    """Raises if a module was passed instead of a function, or what is no array as parameters."""
    check_pure_function(
        "network",
        network,
        for_nnx="`network, params, variables = nnx_network(model)` gives all that `fit` takes.",
        for_linen="Pass `module.apply`, and the variables of `module.init` as `params`.",
    )
    if isinstance(network, _NnxNetwork) and variables is None:
        raise TypeError(
            "The network of `nnx_network` needs the variables that it came with: "
            "`fit(network, params, data, plan, variables=variables)`."
        )
    check_parameters("params", params)


def apply_network(
    network: Network,
    params: Params,
    variables: Variables,
    inputs: chex.ArrayTree,
    *,
    key: Array | None = None,
    train: bool = False,
) -> tuple[Family, Variables]:
    """The predicted distribution and the variables after the pass, of either kind of network."""
    if variables is None:
        return network(params, inputs), None
    dist, variables = network(params, variables, inputs, key=key, train=train)
    return dist, variables


@dataclasses.dataclass(frozen=True)
class _NnxNetwork:
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


def nnx_network(model: Any) -> tuple[Network, chex.ArrayTree, chex.ArrayTree]:
    """A Flax NNX module as a pure function, its parameters and its other variables.

    Dropout and batch normalisation work: the module's own random streams and running statistics are
    among the variables, and it is in training mode in training steps only.

    Args:
        model: called with the inputs it returns a distribution. It is not changed; give the trained
            parameters back by `nnx.update(model, fitted.params, fitted.variables)`.

    Returns:
        Network, parameters and variables, for `fit` and `Method.init`.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from fisher8_jax.heads.nnx import DistributionHead
        >>> from fisher8_jax.training import nnx_network
        >>> network, params, variables = nnx_network(DistributionHead(3, rngs=nnx.Rngs(0)))
        >>> network(params, variables, jnp.ones((5, 3)))[0].batch_shape
        (5,)
    """
    # Imported here, because those who do not use Flax should not wait for it.
    from flax import nnx

    graph, params, *(variables,) = nnx.split(model, nnx.Param, ...)
    # Copies, because a later `nnx.update` of the module changes its variables in place.
    return _NnxNetwork(graph), *jax.tree.map(jnp.copy, (params, variables))
