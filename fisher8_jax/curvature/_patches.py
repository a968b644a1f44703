"""The patches that a convolution multiplies its kernel with, by strided slices."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax


def image_patches(
    images: Array, params: dict[str, Any], window: Sequence[int], space: Sequence[int]
) -> Array:
    """The patches of `images`, shape `(n, *space, entries of the window, channels)`.

    Args:
        images: batch and channels first.
        params: those of the equation `conv_general_dilated`.
        window: the spatial shape of the kernel.
        space: the spatial shape of the result.
    """
    padding = [
        (low, high, dilation - 1)
        for (low, high), dilation in zip(params["padding"], params["lhs_dilation"], strict=True)
    ]
    padded = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), (0, 0, 0), *padding])
    strides = params["window_strides"]
    offsets = itertools.product(
        *(range(0, n * d, d) for n, d in zip(window, params["rhs_dilation"], strict=True))
    )

    def shifted(offset: tuple[int, ...]) -> Array:
        stop = [o + s * (n - 1) + 1 for o, s, n in zip(offset, strides, space, strict=True)]
        return lax.slice(padded, (0, 0, *offset), (*padded.shape[:2], *stop), (1, 1, *strides))

    patches = jnp.stack([shifted(offset) for offset in offsets], axis=-1)
    return jnp.moveaxis(patches, 1, -1).reshape(images.shape[0], *space, -1, images.shape[1])
