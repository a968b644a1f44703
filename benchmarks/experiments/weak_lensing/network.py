"""The convolutional network of the challenge's starting kit, in Flax, for maps of any size."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.machinery.networks import Params, Variables


def _uniform(fan_in: int) -> Any:
    """PyTorch's default for weights and biases alike: uniform on +-1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)

    def init(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class Trunk(nn.Module):
    """Four blocks of convolution, batch norm, ReLU and pooling, then two dense layers."""

    channels: tuple[int, ...]
    dense: tuple[int, ...]
    dropout: tuple[float, ...]

    @nn.compact
    def __call__(self, images: Array, where: Array, *, train: bool) -> Array:
        hidden = images
        for index, channels in enumerate(self.channels):
            first = index == 0
            size, stride = (5, 2) if first else (3, 1)
            fan_in = size * size * hidden.shape[-1]
            hidden = nn.Conv(
                channels,
                (size, size),
                strides=stride,
                padding=size // 2,
                kernel_init=_uniform(fan_in),
                bias_init=_uniform(fan_in),
            )(hidden)
            norm = nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5)
            hidden = norm(hidden, mask=where[:, None, None, None])
            hidden = nn.max_pool(nn.relu(hidden), (2, 2), (2, 2))
        hidden = hidden.reshape(len(hidden), -1)
        for width, rate in zip(self.dense, self.dropout, strict=True):
            hidden = nn.relu(_dense(width, hidden))
            hidden = nn.Dropout(rate, deterministic=not train)(hidden)
        return hidden


class Outputs(nn.Module):
    """The linear outputs: first the means of all targets, then their scales."""

    targets: int
    outputs: int

    @nn.compact
    def __call__(self, hidden: Array) -> Array:
        values = _dense(self.targets * self.outputs, hidden)
        return values.reshape(len(hidden), self.outputs, self.targets)


def _dense(width: int, hidden: Array) -> Array:
    init = _uniform(hidden.shape[-1])
    return nn.Dense(width, kernel_init=init, bias_init=init)(hidden)


@dataclasses.dataclass(frozen=True)
class Cnn:
    """The network as the training loop wants it.

    Args:
        targets: how many numbers a map is regressed on.
        outputs: how many outputs per target the method's link takes.
        channels: of the convolutions; each is followed by a pooling that halves the map.
        dense: widths of the dense layers.
        dropout: their dropout rates.
    """

    targets: int = 2
    outputs: int = 2
    channels: tuple[int, ...] = (16, 32, 64, 128)
    dense: tuple[int, ...] = (512, 128)
    dropout: tuple[float, ...] = (0.2, 0.1)

    @property
    def _parts(self) -> tuple[Trunk, Outputs]:
        trunk = Trunk(self.channels, self.dense, self.dropout)
        return trunk, Outputs(self.targets, self.outputs)

    def init(self, seed: int, shape: tuple[int, int]) -> tuple[Params, Variables]:
        """Parameters and running statistics for maps of the given height and width."""
        trunk, head = self._parts
        keys = jax.random.split(jax.random.key(np.uint32(seed & 0xFFFFFFFF)))
        images, where = jnp.zeros((2, *shape, 1), jnp.float32), jnp.ones(2, bool)
        variables = trunk.init(keys[0], images, where, train=False)
        width = jnp.zeros((2, self.dense[-1]), jnp.float32)
        params = {"trunk": variables["params"], "head": head.init(keys[1], width)["params"]}
        return params, variables["batch_stats"]

    def split(self, params: Params) -> tuple[Params, Params]:
        """The parameters of the means, with the trunk, and those of the other outputs."""
        head = params["head"]["Dense_0"]
        first, rest = (
            jax.tree.map(lambda leaf, cut=cut: leaf[..., cut], head)
            for cut in (slice(self.targets), slice(self.targets, None))
        )
        return {"trunk": params["trunk"], "head": first}, rest

    def forward(
        self,
        params: Params,
        variables: Variables,
        inputs: Any,
        *,
        key: Array | None = None,
        stop_gradient: bool = False,
        train: bool = False,
    ) -> tuple[tuple[Array, ...], Variables]:
        """Outputs of shape (batch, targets) each, and the running statistics.

        Args:
            params: from `init`.
            variables: running statistics, from `init`.
            inputs: images and a mask of those that count, see `Inputs`.
            key: for dropout; needed in training.
            stop-gradient: only the means train the trunk.
            train: whether batch statistics and dropout are used.
        """
        images, where = inputs
        trunk, head = self._parts
        state = {"params": params["trunk"], "batch_stats": variables}
        hidden: Any
        if train:
            assert key is not None
            hidden, changed = trunk.apply(
                state, images, where, train=True, rngs={"dropout": key}, mutable=["batch_stats"]
            )
            variables = changed["batch_stats"]
        else:
            hidden = trunk.apply(state, images, where, train=False)
        weights = {"params": params["head"]}
        outputs: Any = head.apply(weights, hidden)
        rest: Any = head.apply(weights, lax.stop_gradient(hidden)) if stop_gradient else outputs
        return (outputs[:, 0], *(rest[:, index] for index in range(1, self.outputs))), variables
