"""The posterior in the space of outputs: a matrix with one row for each output of each example.

With the whitened Jacobian `R` of all training rows and the prior's precisions `D`,

    A = I + R D^-1 R'
    covariance of the outputs at x, x' = J D^-1 J'' - J D^-1 R' A^-1 R D^-1 J''

where `J`, `J'` are the Jacobians at x and x'. Leaf Gram matrices are kept, so another `D` costs a
factorisation and no derivative. Outputs of one example follow each other.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.batching import cholesky, solve_cholesky, solve_lower
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.curvature import LeafRows
from fisher8_jax.families import Family
from fisher8_jax.posterior._network import Network

Rows = tuple[LeafRows, ...]


@register_tree
@dataclasses.dataclass(frozen=True)
class Dual:
    """The training rows, and their Gram matrices.

    Attributes:
        rows: of the uncertain leaves' Jacobian, at the training inputs.
        root: the lower roots of the Fisher information, `(rows, p, p)`.
        grams: whitened Gram matrices, one for each group of the prior, `(groups, m, m)`.
        of_leaf: the group of each leaf.
    """

    rows: Rows
    root: Array
    grams: Array
    of_leaf: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of rows of `A`."""
        return self.grams.shape[-1]

    def factorize(self, log_precision: Array) -> Array:
        """The lower Cholesky factor of `A`."""
        scaled = jnp.tensordot(jnp.exp(-log_precision), self.grams, 1)
        return cholesky(scaled + jnp.eye(self.size, dtype=scaled.dtype))

    def log_det(self, factor: Array) -> Array:
        """Of `A`."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))

    def effective(self, factor: Array, log_precision: Array) -> Array:
        """The effective number of parameters of each group, `tr(A^-1 K) / precision`."""
        inverse = solve_cholesky(factor, jnp.eye(self.size, dtype=factor.dtype))
        return jnp.einsum("ij,gij->g", inverse, self.grams) * jnp.exp(-log_precision)

    def features(self, network: Network, inputs: ArrayTree) -> tuple[Family, Rows]:
        """Predictions, and what `covariance` wants to know of the inputs."""
        return network.rows(inputs)

    def covariance(self, factor: Array, log_precision: Array, rows: Rows) -> Array:
        """Of the outputs of every example, `(rows, p, p)`."""
        weights = self._weights(log_precision)
        own = sum(w * row.own_gram() for w, row in zip(weights, rows, strict=True))
        explained = self._explained(factor, weights, rows)
        return own - jnp.einsum("nia,nib->iab", explained, explained)

    def joint_covariance(
        self, factor: Array, log_precision: Array, left: Rows, right: Rows
    ) -> Array:
        """Of the outputs at several inputs, `(rows, p, other rows, p)`."""
        weights = self._weights(log_precision)
        prior = _weighted_gram(weights, left, right)
        explained = [self._explained(factor, weights, rows) for rows in (left, right)]
        return prior - jnp.einsum("nia,njb->iajb", *explained)

    def whitened_covariance(self, factor: Array) -> Array:
        """Of every training row's whitened outputs, `(rows, p, p)`: `I` minus blocks of `A^-1`."""
        inverse = solve_cholesky(factor, jnp.eye(self.size, dtype=factor.dtype))
        rows, outputs = self.root.shape[:2]
        blocks = inverse.reshape(rows, outputs, rows, outputs)
        own = jnp.moveaxis(jnp.diagonal(blocks, axis1=0, axis2=2), -1, 0)
        return jnp.eye(outputs, dtype=own.dtype)[None] - own

    def draw(
        self, factor: Array, log_precision: Array, network: Network, inputs: ArrayTree, key: Array
    ) -> list[Array]:
        """A step of the uncertain leaves from the posterior, by Matheron's rule.

        A draw `t` from the prior is corrected by what noisy observations of `R t` say about it.
        """
        scales = [jnp.exp(-0.5 * log_precision[group]) for group in self.of_leaf]
        leaf_key, noise_key = jax.random.split(key)
        leaves = network.uncertain()
        keys = jax.random.split(leaf_key, len(leaves))
        step = [
            scale * jax.random.normal(k, leaf.shape, leaf.dtype)
            for scale, k, leaf in zip(scales, keys, leaves, strict=True)
        ]
        seen = jnp.einsum("iab,ia->ib", self.root, network.push(step, inputs))
        noisy = seen + jax.random.normal(noise_key, seen.shape, seen.dtype)
        solved = solve_cholesky(factor, noisy.reshape(-1, 1)).reshape(seen.shape)
        pulled = network.pull(jnp.einsum("iab,ib->ia", self.root, solved), inputs)
        return [t - s**2 * p for t, s, p in zip(step, scales, pulled, strict=True)]

    def _weights(self, log_precision: Array) -> list[Array]:
        return [jnp.exp(-log_precision[group]) for group in self.of_leaf]

    def _explained(self, factor: Array, weights: Sequence[Array], rows: Rows) -> Array:
        """`chol(A)^-1 R D^-1 J'`, shape `(m, rows, p)`."""
        cross = _weighted_gram(weights, rows, self.rows)
        cross = jnp.einsum("iajc,jcb->iajb", cross, self.root)
        flat = cross.reshape(-1, self.size)
        solved = solve_lower(factor, flat.T)
        return solved.reshape(-1, *cross.shape[:2])


def _weighted_gram(weights: Sequence[Array], left: Rows, right: Rows) -> Array:
    """`J D^-1 J'` of two batches, `(rows, p, other rows, p)`."""
    total = sum(w * a.gram(b) for w, a, b in zip(weights, left, right, strict=True))
    return jnp.transpose(total, (1, 0, 3, 2))


def group_grams(
    left: Rows, right: Rows, roots: tuple[Array, Array], of_leaf: tuple[int, ...], groups: int
) -> Array:
    """Whitened Gram matrices of two batches for each group, `(groups, p rows, p other rows)`."""
    totals: list[Array | None] = [None] * groups
    for group, a, b in zip(of_leaf, left, right, strict=True):
        gram = a.gram(b)
        old = totals[group]
        totals[group] = gram if old is None else old + gram
    blocks = jnp.stack([total for total in totals if total is not None])
    white = jnp.einsum("gciej,ica,jeb->giajb", blocks, *roots)
    rows, outputs = roots[0].shape[:2]
    return white.reshape(groups, rows * outputs, -1)
