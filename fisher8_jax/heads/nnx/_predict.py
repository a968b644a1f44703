"""A module's prediction as a function of its parameters, whatever else it holds."""

from collections.abc import Callable

import chex
import jax
from flax import nnx

from fisher8_jax.families import Family


def predict_fn(
    model: nnx.Module, *args: chex.ArrayTree, **kwargs: object
) -> Callable[[nnx.State], Family]:
    """What `model(*args, **kwargs)` predicts, as a function of its parameters alone.

    For the argument `predict` of the KL radius. Running statistics and random streams are those at
    this moment and are copied at every call: a batch norm in training mode changes the copy, not
    the model, and dropout draws the masks that the model's next call would draw. So call it
    *before* the loss, in the same mode as the loss, then both see the same masks.

    Args:
        model: returns a distribution, without `fisher8`.
        args: its arguments, mostly the inputs of the batch.
        kwargs: its keyword arguments.

    Returns:
        A function from the state of all `nnx.Param` of the model to a distribution.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> from fisher8_jax.heads.nnx import DistributionHead, predict_fn
        >>> model = nnx.Sequential(
        ...     nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
        ...     nnx.Dropout(0.5, rngs=nnx.Rngs(1)),
        ...     DistributionHead(3, rngs=nnx.Rngs(2)),
        ... )
        >>> predict = predict_fn(model, jnp.arange(12.0).reshape(4, 3))
        >>> params = nnx.state(model, nnx.Param)
        >>> bool(jnp.all(predict(params).mean == predict(params).mean))  # the same mask
        True
        >>> bool(jnp.all(model.layers[0].mean[...] == 0))  # running means are untouched
        True
    """
    graph, _, *(rest,) = nnx.split(model, nnx.Param, ...)

    def predict(params: nnx.State) -> Family:
        return nnx.merge(graph, params, rest, copy=True)(*args, **kwargs)

    return predict


def predict_one_fn(
    model: nnx.Module, **kwargs: object
) -> Callable[[nnx.State, chex.ArrayTree], Family]:
    """What `model` predicts for one example, as a function of its parameters and the example.

    For the argument `predict_one` of `network_gradient` and `network_curvature`. There, examples
    must not influence each other, so the model is evaluated as for predictions, whatever its mode:
    batch norms use their running averages, dropout is off. The model itself does not change; call
    it on the batch as usual where running averages are to be updated.

    Args:
        model: maps a batch of inputs to a distribution, without `fisher8`.
        kwargs: its keyword arguments.

    Returns:
        A function of the state of all `nnx.Param` of the model, and of one example without batch
        axis.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> from fisher8_jax import network_gradient
        >>> from fisher8_jax.heads.nnx import DistributionHead, predict_one_fn
        >>> model = nnx.Sequential(
        ...     nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
        ...     nnx.Dropout(0.5, rngs=nnx.Rngs(1)),
        ...     DistributionHead(3, rngs=nnx.Rngs(2)),
        ... )
        >>> params, x, y = nnx.state(model, nnx.Param), jnp.ones((4, 3)), jnp.zeros(4)
        >>> step = network_gradient(predict_one_fn(model), params, x, y)
        >>> print(jax.tree.structure(step.gradient) == jax.tree.structure(params))
        True
    """
    frozen = nnx.clone(model)
    frozen.eval()
    graph, _, *(rest,) = nnx.split(frozen, nnx.Param, ...)

    def predict_one(params: nnx.State, example: chex.ArrayTree) -> Family:
        batch = jax.tree.map(lambda leaf: leaf[None], example)
        dist = nnx.merge(graph, params, rest, copy=True)(batch, **kwargs)
        return jax.tree.map(lambda leaf: leaf[0], dist)

    return predict_one
