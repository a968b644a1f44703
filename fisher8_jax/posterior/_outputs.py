"""What a family says about its outputs, one vector and one matrix for each example."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax.families import Family


class Outputs(NamedTuple):
    """Predictions and targets of some rows; `p` outputs each.

    Attributes:
        nll: of every row, summed over its elements.
        gradient: of the NLL with respect to the outputs, `(rows, p)`.
        score: the same in whitened coordinates, `L^-1 gradient`.
        root: the lower `L` with Fisher information `L L'`, `(rows, p, p)`.
    """

    nll: Array
    gradient: Array
    score: Array
    root: Array


def outputs_of(dist: Family, targets: Array) -> Outputs:
    """NLL, its gradient and the Fisher information of every row."""
    dist = dist.widen()
    values, pull_back = jax.vjp(lambda d: d.nll(targets), dist)
    (cotangent,) = pull_back(jnp.ones_like(values))
    root = block_root(dist)
    # Through the natural cotangent, which exists where `L` has no inverse.
    score = jnp.einsum("iab,ia->ib", root, vectors_of(dist.natural(cotangent)))
    nll = jnp.sum(values.reshape(dist.batch_shape[0], -1), 1)
    return Outputs(nll, vectors_of(cotangent), score, root)


def vectors_of(dist: Family) -> Array:
    """All outputs of every row, `(rows, p)`."""
    vector = dist.to_vector()
    return vector.reshape(vector.shape[0], -1)


def from_vectors(dist: Family, vectors: Array) -> Family:
    """The inverse of `vectors_of`."""
    return dist.from_vector(vectors.reshape(*dist.batch_shape, -1))


def block_root(dist: Family) -> Array:
    """`fisher_factor` of all elements of a row as one matrix, `(rows, p, p)`."""
    factor = dist.fisher_factor()
    rows, size = factor.shape[0], factor.shape[-1]
    factor = factor.reshape(rows, -1, size, size)
    elements = factor.shape[1]
    if elements == 1:
        return factor[:, 0]
    eye = jnp.eye(elements, dtype=factor.dtype)
    blocks = factor[:, :, :, None, :] * eye[None, :, None, :, None]
    return blocks.reshape(rows, elements * size, elements * size)
