"""The coordinates in which the Fisher information of every prediction is the identity.

With `F = L L'` the whitened output of the network is `L' theta`, one small matrix per element. In
these coordinates a step of length 1 is a divergence of 1/2 nat, whatever the family.
"""

import dataclasses
import math

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.families import Family


@register_tree
@dataclasses.dataclass(frozen=True)
class Whitening:
    """The change of coordinates of every element of the batch.

    Attributes:
        factor: `L`, shape `batch_shape + (p, p)`.
        root_weights: roots of the elements' weights, 0 outside the mask; None where all are 1.
        is_weighted: whether some weights are neither 0 nor 1.
    """

    factor: Array
    root_weights: Array | None
    is_weighted: bool = dataclasses.field(metadata={"static": True})

    @property
    def outputs(self) -> int:
        """How many coordinates the distribution of a row has."""
        return math.prod(self.factor.shape[1:-1])

    def whiten_natural(self, natural: Array) -> Array:
        """`u` with `sqrt(w) L u = g`, from the natural cotangent `F^-1 g`; batch_shape + (p,)."""
        whitened = jnp.sum(self.factor * natural[..., :, None], -2)  # einsum would not fuse
        if self.root_weights is None:
            return whitened
        roots = self.root_weights[..., None]
        return jnp.where(roots == 0, 0, whitened / jnp.where(roots == 0, 1, roots))

    def whiten(self, tangent: Array) -> Array:
        """`sqrt(w) L' tangent`, shape batch_shape + (p,)."""
        whitened = jnp.sum(self.factor * tangent[..., :, None], -2)
        return whitened if self.root_weights is None else whitened * self.root_weights[..., None]

    def to_cotangent(self, whitened: Array) -> Array:
        """`sqrt(w) L whitened`, shape batch_shape + (p,)."""
        cotangent = jnp.sum(self.factor * whitened[..., None, :], -1)
        return cotangent if self.root_weights is None else cotangent * self.root_weights[..., None]

    def unit_cotangents(self) -> Array:
        """Cotangents that give the rows of the whitened Jacobian.

        Shape `(outputs, rows, elements of a row, p)`, where `outputs = elements * p`.
        """
        factor = self.factor
        if self.root_weights is not None:
            factor = factor * self.root_weights[..., None, None]
        rows, size = factor.shape[0], factor.shape[-1]
        factor = factor.reshape(rows, -1, size, size)
        elements = factor.shape[1]
        columns = jnp.moveaxis(factor, -1, 0)  # (p, rows, elements, p)
        own = jnp.eye(elements, dtype=factor.dtype)[:, None, None, :, None]
        return (own * columns[None]).reshape(elements * size, rows, elements, size)


def whitening(dist: Family, where: Array | None, weights: Array | None) -> Whitening:
    """The whitening of a batch; mask and weights have been expanded to its shape."""
    factor = dist.fisher_factor()
    if where is None and weights is None:
        return Whitening(factor, None, is_weighted=False)
    roots = jnp.ones(dist.batch_shape, factor.dtype)
    if weights is not None:
        roots = jnp.sqrt(at_least_float32(weights).astype(factor.dtype))
    roots = roots if where is None else jnp.where(where, roots, 0)
    return Whitening(factor, roots, is_weighted=weights is not None)
