"""The head for Flax Linen."""

from collections.abc import Callable, Mapping
from typing import Generic

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fisher8_jax.heads._links import Link, SomeFamily, check_link
from fisher8_jax.heads._outputs import (
    corrected,
    flat_sizes,
    make_distribution,
    output_biases,
)


class DistributionHead(nn.Module, Generic[SomeFamily]):
    """From features to a predicted distribution, one linear layer per raw output.

    The layers and the link compute in at least float32, whatever the dtype of the features. Type
    checkers know which family a head predicts: that of its link, by default the Gaussian.

    Args:
        link: 'log_variance', 'softplus_std', 'softplus_variance', 'soft_bounds', or a `Link` such
            as `family_link(Laplace)`.
        target_shape: the shape of one row of predictions, () for one target per row.
        stop_gradient: True lets only the first raw output, the location, train what is below the
            head, as Faithful does.
        initial: first biases by the name of the raw output; `initial_outputs(link, targets)` makes
            them from data. Zeros by default.
        kernel_init: the initialiser of all kernels.

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
        link = check_link(self.link)
        biases = output_biases(link, self.target_shape, self.initial)
        layers = {
            name: nn.Dense(
                size,
                param_dtype=jnp.float32,
                kernel_init=self.kernel_init,
                bias_init=_constant(biases[name]),
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


def _constant(values: chex.Numeric) -> Callable[..., Array]:
    def init(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
        del key
        return jax.numpy.asarray(values, dtype).reshape(shape)

    return init
