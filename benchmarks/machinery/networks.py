"""Networks of the experiments as pure functions of a parameter tree.

What the training loop needs of a network is one method:

    forward(params, variables, inputs, *, key, stop-gradient, train) -> (outputs, variables)

`outputs` is a tuple of arrays with the shape of the targets, the mean's first; a method's link
makes a distribution of them. `variables` are what the network updates itself (running statistics),
None if nothing. `stop_gradient` cuts the gradient between all outputs but the first and what lies
below them. `key` feeds dropout. `split(params)` gives the parameters of the mean and of the rest to
methods that penalise them.

Initial values are drawn with NumPy at their true shapes, so that zero columns added to give several
data sets one shape change nothing.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Params = Any
Variables = Any

_FIRST, _REST = slice(0, 1), slice(1, None)


class Network(Protocol):
    """What the training loop asks of a network; instances must be hashable."""

    def forward(
        self,
        params: Params,
        variables: Variables,
        inputs: Array,
        *,
        key: Array | None,
        stop_gradient: bool,
        train: bool,
    ) -> tuple[tuple[Array, ...], Variables]: ...

    def split(self, params: Params) -> tuple[Params, Params]: ...


@dataclasses.dataclass(frozen=True)
class Mlp:
    """Dense layers on a shared trunk, then linear outputs for one scalar target.

    Args:
        hidden: the widths of the hidden layers.
        activation: applied after each of them.
        outputs: how many numbers the link takes.
    """

    hidden: tuple[int, ...]
    activation: Callable[[Array], Array] = jax.nn.elu
    outputs: int = 2

    def init(self, rng: np.random.Generator, features: int, padded: int | None = None) -> Params:
        """Weights and biases uniform on +-1/sqrt(fan_in), the default of PyTorch's linear layers.

        Args:
            rng: a generator of this network's own.
            features: the number of input columns that carry data.
            padded: the number of columns that inputs are padded to; the added weights are zero.
        """
        widths = (features, *self.hidden)
        trunk = [uniform_layer(rng, a, b) for a, b in itertools.pairwise(widths)]
        extra = (padded or features) - features
        trunk[0]["w"] = np.pad(trunk[0]["w"], ((0, extra), (0, 0)))
        return {"trunk": trunk, "head": uniform_layer(rng, widths[-1], self.outputs)}

    def features(self, params: Params, inputs: Array) -> Array:
        """The last hidden activations."""
        hidden = inputs
        for layer in params["trunk"]:
            hidden = self.activation(affine(hidden, layer))
        return hidden

    def forward(
        self,
        params: Params,
        variables: Variables,
        inputs: Array,
        *,
        key: Array | None = None,
        stop_gradient: bool = False,
        train: bool = False,
    ) -> tuple[tuple[Array, ...], Variables]:
        hidden = self.features(params, inputs)
        head = params["head"]
        if not stop_gradient:
            outputs = affine(hidden, head)
            return tuple(outputs[..., index] for index in range(self.outputs)), variables
        # Two products: in one, a scale that overflowed would reach the trunk as 0 * inf.
        first, rest = ({k: v[..., cut] for k, v in head.items()} for cut in (_FIRST, _REST))
        mean, others = affine(hidden, first), affine(lax.stop_gradient(hidden), rest)
        scales = tuple(others[..., index] for index in range(self.outputs - 1))
        return (mean[..., 0], *scales), variables

    def split(self, params: Params) -> tuple[Params, Params]:
        """The parameters of the mean, with the trunk, and those of the other outputs."""
        head = params["head"]
        first, rest = ({k: v[..., cut] for k, v in head.items()} for cut in (_FIRST, _REST))
        return {"trunk": params["trunk"], "head": first}, rest


def stack_members(trees: Sequence[Params]) -> Params:
    """One tree with the given ones along a new first axis of every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def affine(inputs: Array, layer: Params) -> Array:
    """`inputs @ w + b`."""
    outputs = inputs @ layer["w"]
    return outputs + jnp.broadcast_to(layer["b"], outputs.shape)


def uniform_layer(rng: np.random.Generator, fan_in: int, fan_out: int) -> dict[str, np.ndarray]:
    """PyTorch's default for a linear layer."""
    bound = 1 / math.sqrt(fan_in)
    return {
        "w": rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32),
        "b": rng.uniform(-bound, bound, fan_out).astype(np.float32),
    }


def spread_over(
    params: Params, rng: np.random.Generator, *, low: float, high: float, slope: float
) -> Params:
    """Gives the first layer's units slopes N(0, slope^2) and centres uniform on [low, high].

    A unit `tanh(w (x - centre))` is sensitive near its centre only. With small default weights on a
    wide domain all units are nearly linear there, and high frequencies are learned very slowly.
    """
    layer = params["trunk"][0]
    weights = rng.normal(0, slope, layer["w"].shape).astype(np.float32)
    centres = rng.uniform(low, high, layer["b"].shape).astype(np.float32)
    first = {"w": weights, "b": -weights[0] * centres}
    return {**params, "trunk": [first, *params["trunk"][1:]]}
