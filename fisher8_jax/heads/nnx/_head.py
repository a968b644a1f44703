"""The head for Flax NNX, and predictions of a module as functions of its parameters."""

from collections.abc import Callable, Mapping
from typing import Generic

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from fisher8_jax.families import Family
from fisher8_jax.heads._links import (
    Link,
    SomeFamily,
    check_link,
    corrected,
    flat_sizes,
    make_distribution,
    output_biases,
)

_LECUN_NORMAL = nnx.initializers.lecun_normal()


class DistributionHead(nnx.Module, Generic[SomeFamily]):
    """From features to a predicted distribution, one linear layer per raw output.

    The layers and the link compute in at least float32, whatever the dtype of the features. Type
    checkers know which family a head predicts: that of its link, by default the Gaussian.

    Args:
        in_features: the number of features.
        link: 'log_variance', 'softplus_std', 'softplus_variance', 'soft_bounds', or a `Link` such
            as `family_link(Laplace)`.
        target_shape: the shape of one row of predictions, () for one target per row.
        stop_gradient: True lets only the first raw output, the location, train what is below the
            head, as Faithful does.
        initial: first biases by the name of the raw output; `initial_outputs(link, targets)` makes
            them from data. Zeros by default.
        kernel_init: the initialiser of all kernels.
        rngs: the random streams of NNX.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from fisher8_jax.heads.nnx import DistributionHead
        >>> head = DistributionHead(7, target_shape=(2,), rngs=nnx.Rngs(0))
        >>> dist = head(jnp.ones((5, 7), jnp.bfloat16))
        >>> dist.mean.shape, dist.mean.dtype
        ((5, 2), dtype('float32'))
    """

    def __init__(
        self,
        in_features: int,
        *,
        link: str | Link[SomeFamily] = "log_variance",
        target_shape: tuple[int, ...] = (),
        stop_gradient: bool = False,
        initial: Mapping[str, chex.Numeric] | None = None,
        kernel_init: Callable[..., Array] = _LECUN_NORMAL,
        rngs: nnx.Rngs,
    ):
        self.link = check_link(link)
        self.target_shape = tuple(target_shape)
        self.stop_gradient = stop_gradient
        biases = output_biases(self.link, self.target_shape, initial)
        layers = {}
        for name, size in flat_sizes(self.link, self.target_shape).items():
            layer = nnx.Linear(
                in_features, size, param_dtype=jnp.float32, kernel_init=kernel_init, rngs=rngs
            )
            layer.bias = nnx.Param(jnp.asarray(biases[name]))
            layers[name] = layer
        self.layers = nnx.Dict(layers)
        self.learned = nnx.Dict(
            {
                name: nnx.Param(jnp.full(self.target_shape, value, jnp.float32))
                for name, value in self.link.learned
            }
        )

    def __call__(
        self,
        features: Array,
        *,
        natural_gradient: bool = False,
        where: Array | None = None,
        axis: int | tuple[int, ...] = 0,
    ) -> SomeFamily:
        """The predicted distribution for each row.

        Args:
            features: any batch axes, features last.
            natural_gradient: True makes what follows back-propagate by `fisher8`. Leave it False
                for predictions and for the KL radius.
            where: the mask of `fisher8`.
            axis: the batch axis or axes of `fisher8`.

        Returns:
            A distribution of batch shape `features.shape[:-1] + target_shape`.
        """
        learned = {name: param[...] for name, param in self.learned.items()}
        dist = make_distribution(
            self.link,
            self.target_shape,
            features,
            self.layers,
            learned,
            stop_gradient=self.stop_gradient,
        )
        return corrected(dist, natural_gradient, axis, where)


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
