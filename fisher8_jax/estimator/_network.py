"""The network of the estimator: dense layers, then the raw outputs of a likelihood."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Family
from fisher8_jax.heads import Link, family_link


@functools.lru_cache
def link_of(family: type[Family]) -> Link[Family]:
    """The link of a family, the same object every time, so that programs are found again."""
    return family_link(family)


@dataclasses.dataclass(frozen=True)
class DenseNetwork:
    """Dense layers on encoded inputs, then a distribution for each target.

    Args:
        hidden: the widths of the hidden layers.
        link: from raw outputs to a distribution.
        target_shape: () for one target, (k,) for several.
        activation: applied after each hidden layer.
    """

    hidden: tuple[int, ...]
    link: Link[Family]
    target_shape: tuple[int, ...]
    activation: Callable[[Array], Array] = jax.nn.silu

    def init(
        self, rng: np.random.Generator, features: int, start: Mapping[str, np.ndarray]
    ) -> chex.ArrayTree:
        """First parameters, drawn with NumPy: a compiled initialiser would take seconds.

        Args:
            rng: of this member alone.
            features: the width of the inputs.
            start: first biases of raw outputs, by name.
        """
        outputs = [
            np.broadcast_to(start.get(name, 0.0), shape).reshape(-1)
            for name, shape in self._outputs()
        ]
        bias = np.concatenate(outputs).astype(np.float32)
        widths = (features, *self.hidden, len(bias))
        layers = [_dense(rng, a, b) for a, b in itertools.pairwise(widths)]
        layers[-1]["bias"] = bias
        return layers

    def __call__(
        self, params: chex.ArrayTree, inputs: Array, offset: Array | None = None
    ) -> Family:
        """The distribution for any number of rows.

        Args:
            params: of one member.
            inputs: encoded rows.
            offset: added to the location of each row.
        """
        features = inputs
        *hidden, last = params
        for layer in hidden:
            features = self.activation(_affine(features, layer))
        flat, first, raw = _affine(features, last), 0, {}
        for name, shape in self._outputs():
            size = math.prod(shape)
            raw[name] = flat[..., first : first + size].reshape(*flat.shape[:-1], *shape)
            first += size
        if offset is not None:
            location = raw[self.link.names[0]]
            raw[self.link.names[0]] = location + append_axes(offset, location.ndim)
        return self.link.make(**raw)

    def shift_output(self, params: chex.ArrayTree, name: str, amount: np.ndarray) -> chex.ArrayTree:
        """Parameters with which the raw output `name` is larger by `amount`.

        Args:
            params: of one member or stacked, NumPy arrays.
            name: of the output, one of `link.names`.
            amount: the shape of one row's output.
        """
        first = 0
        for output, shape in self._outputs():
            last = first + math.prod(shape)
            if output == name:
                break
            first = last
        *hidden, layer = params
        bias = np.array(layer["bias"])
        bias[..., first:last] += np.reshape(amount, -1).astype(bias.dtype)
        return [*hidden, {**layer, "bias": bias}]

    def _outputs(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, (*self.target_shape, *axes)) for name, axes in self.link.outputs]


def _dense(rng: np.random.Generator, fan_in: int, fan_out: int) -> dict[str, np.ndarray]:
    kernel = rng.normal(0, 1 / math.sqrt(fan_in), (fan_in, fan_out))
    return {"kernel": kernel.astype(np.float32), "bias": np.zeros(fan_out, np.float32)}


def _affine(inputs: Array, layer: Mapping[str, Array]) -> Array:
    outputs = inputs @ layer["kernel"]
    return outputs + jnp.broadcast_to(layer["bias"], outputs.shape)
