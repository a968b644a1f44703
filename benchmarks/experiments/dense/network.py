"""A small U-Net with two outputs per pixel."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from fisher8_jax import Gaussian


class _Block(nnx.Module):
    """Two 3x3 convolutions with group normalisation."""

    def __init__(self, channels_in: int, channels_out: int, *, rngs: nnx.Rngs):
        self.first = nnx.Conv(channels_in, channels_out, (3, 3), rngs=rngs)
        self.second = nnx.Conv(channels_out, channels_out, (3, 3), rngs=rngs)
        self.norm = nnx.GroupNorm(channels_out, num_groups=4, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return nnx.gelu(self.second(nnx.gelu(self.norm(self.first(x)))))


class UNet(nnx.Module):
    """Three scales, skip connections, a Gaussian for every pixel; sides divisible by 4."""

    def __init__(self, channels: int, width: int, *, rngs: nnx.Rngs):
        self.down = nnx.List(
            [
                _Block(channels, width, rngs=rngs),
                _Block(width, 2 * width, rngs=rngs),
                _Block(2 * width, 4 * width, rngs=rngs),
            ]
        )
        self.up = nnx.List(
            [_Block(6 * width, 2 * width, rngs=rngs), _Block(3 * width, width, rngs=rngs)]
        )
        small = nnx.initializers.normal(0.01)
        self.head = nnx.Conv(width, 2, (1, 1), kernel_init=small, rngs=rngs)

    def __call__(self, x: Array) -> Gaussian:
        fine = self.down[0](x)
        middle = self.down[1](nnx.avg_pool(fine, (2, 2), (2, 2)))
        coarse = self.down[2](nnx.avg_pool(middle, (2, 2), (2, 2)))
        middle = self.up[0](jnp.concatenate([_double(coarse), middle], -1))
        fine = self.up[1](jnp.concatenate([_double(middle), fine], -1))
        outputs = self.head(fine)
        return Gaussian(outputs[..., 0], outputs[..., 1])


def _double(x: Array) -> Array:
    batch, height, width, channels = x.shape
    return jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "nearest")
