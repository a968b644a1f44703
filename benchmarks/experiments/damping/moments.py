"""A damping of its own for every parameter: roots of factored second moments, as in Adafactor.

The system is `(J' F J / n + damping D) d = gradient`. With parameters `p = q / sqrt(D)` it is the
one of a network of `q` that is damped by the identity, so `network_gradient` solves it. For a
kernel `D` is a product of one factor for its rows and one for its columns: the network of `q`
multiplies activations and outputs by them and keeps the matrix product between the two.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax import Gaussian

Params = Any


class Factors(NamedTuple):
    """The positive numbers `row[:, None] * column` of a kernel."""

    row: Array
    column: Array

    def full(self) -> Array:
        """All entries."""
        return self.row[:, None] * self.column[None]


Scale = Array | Factors


def is_factored(node: object) -> bool:
    return isinstance(node, Factors)


class SecondMoments(NamedTuple):
    """Running means of squared gradients, for each row and column of every kernel.

    Attributes:
        means: a tree like the parameters, of `Factors` for kernels.
        weight: how much of the means is data, `1 - decay^steps`.

    Reference:
        Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, ICML 2018,
        algorithm 1.
    """

    means: Params
    weight: Array

    @classmethod
    def zeros(cls, params: Params) -> Self:
        """Before the first gradient."""

        def zero(leaf: Array) -> Scale:
            if jnp.ndim(leaf) < 2:
                return jnp.zeros_like(leaf)
            rows, columns = leaf.shape
            return Factors(jnp.zeros(rows, leaf.dtype), jnp.zeros(columns, leaf.dtype))

        return cls(jax.tree.map(zero, params), jnp.zeros(()))

    def add(self, gradients: Params, *, decay: float = 0.99) -> Self:
        """With one more gradient; one that is not finite counts as none."""
        leaves = jax.tree.leaves(gradients)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        new = jnp.where(finite, 1 - decay, 0)

        def blend(mean: Array, value: Array) -> Array:
            return jnp.where(finite, mean + new * (value - mean), mean)

        def accumulate(mean: Scale, gradient: Array) -> Scale:
            square = jnp.square(gradient)
            if not isinstance(mean, Factors):
                return blend(mean, square)
            return Factors(blend(mean.row, square.mean(1)), blend(mean.column, square.mean(0)))

        means = jax.tree.map(accumulate, self.means, gradients, is_leaf=is_factored)
        return type(self)(means, self.weight + new * (1 - self.weight))

    def damping_scale(self, *, smallest: float = 1e-6) -> Params:
        """`D`: the root of the second moment, at least `smallest` of the leaf's root mean square.

        Ones before the first gradient.
        """
        weight = jnp.where(self.weight > 0, self.weight, 1)

        def root(mean: Array, average: Array) -> Array:
            size = jnp.sqrt(jnp.maximum(mean, math.pow(smallest, 2) * average) / weight)
            return jnp.where(average > 0, size, 1)

        def scale(mean: Scale) -> Scale:
            if not isinstance(mean, Factors):
                return root(mean, jnp.mean(mean))
            average = jnp.mean(mean.row)
            typical = jnp.where(average > 0, jnp.sqrt(average / weight), 1)
            return Factors(root(mean.row, average) / typical, root(mean.column, average))

        return jax.tree.map(scale, self.means, is_leaf=is_factored)


def full_roots(scale: Params) -> Params:
    """`sqrt(D)`, a tree like the parameters."""

    def root(part: Scale) -> Array:
        return jnp.sqrt(part.full() if isinstance(part, Factors) else part)

    return jax.tree.map(root, scale, is_leaf=is_factored)


@dataclasses.dataclass(frozen=True)
class ScaledPredict:
    """A dense network as a function of `q = sqrt(D) p`."""

    network: Any
    scale: Params

    def __call__(self, params: Params, inputs: Array) -> Gaussian:
        *trunk, head = zip(
            (*params["trunk"], params["head"]),
            (*self.scale["trunk"], self.scale["head"]),
            strict=True,
        )
        hidden = inputs
        for layer, scale in trunk:
            hidden = self.network.activation(_affine(hidden, layer, scale))
        outputs = _affine(hidden, *head)
        return Gaussian(outputs[..., 0], outputs[..., 1])


def _affine(inputs: Array, layer: Params, scale: Params) -> Array:
    """`inputs @ w + b` of the parameters behind `layer`."""
    row, column, bias = (jax.lax.rsqrt(x) for x in (*scale["w"], scale["b"]))
    outputs = (inputs * jnp.broadcast_to(row, inputs.shape)) @ layer["w"]
    column, bias = (jnp.broadcast_to(x, outputs.shape) for x in (column, layer["b"] * bias))
    return outputs * column + bias
