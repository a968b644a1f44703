"""The posterior in the space of outputs: a matrix with one row for each output of each example.

With the whitened Jacobian `R` of all training rows and the prior's precisions `D`,

    A = I + R D^-1 R'
    covariance of the outputs at x, x' = J D^-1 J'' - J D^-1 R' A^-1 R D^-1 J''

where `J`, `J'` are the Jacobians at x and x'. Leaf Gram matrices are kept, so another `D` costs a
factorisation and no derivative. Rows of `A` are ordered by output first, then by example.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.batching import cholesky, solve_cholesky, solve_lower
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.curvature import LeafRows
from fisher8_jax.families import Family
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import Outputs
from fisher8_jax.posterior._triangular import inverse_from, inverse_root, invert

Rows = tuple[LeafRows, ...]


@register_tree
@dataclasses.dataclass(frozen=True)
class Dual:
    """The training rows, and their Gram matrices.

    Attributes:
        rows: of the uncertain leaves' Jacobian at the training inputs, whitened.
        root: the lower roots of the Fisher information, `(rows, p, p)`.
        grams: whitened Gram matrices, one for each group of the prior, `(groups, m, m)`; None where
            nothing but predictions is asked for.
        of_leaf: the group of each leaf.
    """

    rows: Rows
    root: Array
    grams: Any
    of_leaf: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of rows of `A`."""
        return self.root.shape[-3] * self.root.shape[-2]

    def to_predict(self) -> "Dual":
        """What `covariance` reads, on the device."""
        return jax.device_put(Dual(self.rows, self.root, None, self.of_leaf))

    def factorize(self, log_precision: Array) -> Array:
        """The lower Cholesky factor of `A`."""
        scaled = jnp.tensordot(jnp.exp(-log_precision), self.grams, 1)
        return cholesky(scaled + jnp.eye(self.size, dtype=scaled.dtype))

    def log_det(self, factor: Array) -> Array:
        """Of `A`."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))

    def effective(self, factor: Array, log_precision: Array) -> Array:
        """The effective number of parameters of each group, `tr(A^-1 K) / precision`."""
        traces = self.grams.reshape(len(self.grams), -1) @ inverse_from(factor).reshape(-1)
        return traces * jnp.exp(-log_precision)

    def effective_on_host(self, log_precision: np.ndarray) -> np.ndarray:
        """`effective`, summed over stacked systems if there are any, by NumPy."""
        grams = self.grams.reshape(-1, *self.grams.shape[-3:])
        weights = np.exp(-log_precision)
        inverse = invert(np.tensordot(grams, weights, (1, 0)) + np.eye(self.size))
        return weights * np.einsum("bgij,bij->g", grams, inverse)

    def blocks(self, places: np.ndarray) -> "Dual":
        """Independent systems of some rows each, `places[block, row]`, stacked."""
        rows, outputs = self.root.shape[:2]
        at = (np.arange(outputs)[:, None] * rows + places[:, None]).reshape(len(places), -1)
        grams = np.stack([self.grams[:, i[:, None], i[None]] for i in at])
        return Dual((), self.root[places], grams, self.of_leaf)

    def features(self, network: Network, inputs: ArrayTree) -> tuple[Family, Rows]:
        """Predictions, and what `covariance` wants to know of the inputs."""
        return network.rows(inputs)

    def covariance(self, factor: Array, log_precision: Array, rows: Rows) -> Array:
        """Of the outputs of every example, `(rows, p, p)`."""
        weights = self._weights(log_precision)
        own = sum(w * row.own_gram() for w, row in zip(weights, rows, strict=True))
        explained = self._explained(factor, weights, rows)
        return own - jnp.moveaxis(jnp.sum(explained[:, None] * explained[None], -1), -1, 0)

    def joint_covariance(
        self, factor: Array, log_precision: Array, left: Rows, right: Rows
    ) -> Array:
        """Of the outputs at several inputs, `(rows, p, other rows, p)`."""
        weights = self._weights(log_precision)
        prior = jnp.transpose(_weighted_gram(weights, left, right), (1, 0, 3, 2))
        explained = [self._explained(factor, weights, rows) for rows in (left, right)]
        return prior - jnp.einsum("ain,bjn->iajb", *explained)

    def whitened_covariance(self, factor: Array) -> Array:
        """Of every training row's whitened outputs, `(rows, p, p)`: `I` minus blocks of `A^-1`."""
        rows, outputs = self.root.shape[:2]
        root = inverse_root(factor).reshape(-1, outputs, rows)
        own = jnp.sum(root[:, :, None] * root[:, None], 0)
        return jnp.eye(outputs, dtype=own.dtype)[None] - jnp.moveaxis(own, -1, 0)

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
        pulled = self._pull(factor, network, inputs, noisy)
        return [t - s**2 * p for t, s, p in zip(step, scales, pulled, strict=True)]

    def newton_step(
        self,
        factor: Array,
        log_precision: Array,
        network: Network,
        inputs: ArrayTree,
        seen: Outputs,
    ) -> list[Array]:
        """`- (R' R + D)^-1 gradient` of the uncertain leaves, the gradient that of the NLL."""
        pulled = self._pull(factor, network, inputs, seen.score)
        return [-w * p for w, p in zip(self._weights(log_precision), pulled, strict=True)]

    def _pull(
        self, factor: Array, network: Network, inputs: ArrayTree, white: Array
    ) -> list[Array]:
        """`R' A^-1` times one whitened vector for each row."""
        solved = by_row(solve_cholesky(factor, by_output(white)[:, None]), len(white))
        return network.pull(jnp.einsum("iab,ib->ia", self.root, solved), inputs)

    def _weights(self, log_precision: Array) -> list[Array]:
        return [jnp.exp(-log_precision[group]) for group in self.of_leaf]

    def _explained(self, factor: Array, weights: Sequence[Array], rows: Rows) -> Array:
        """`J D^-1 R' chol(A)^-T`, shape `(p, rows, m)`."""
        cross = _weighted_gram(weights, rows, self.rows)
        solved = solve_lower(factor, cross.reshape(-1, self.size).T)
        return solved.T.reshape(*cross.shape[:2], self.size)


def by_output(vectors: Array) -> Array:
    """Vectors of all rows, `(rows, p)`, in the order of `A`."""
    return vectors.T.reshape(-1)


def by_row(flat: Array, rows: int) -> Array:
    """The inverse of `by_output`."""
    return flat.reshape(-1, rows).T


def whiten(rows: Rows, root: Array) -> Rows:
    """`L' J` of every example."""
    return tuple(
        LeafRows(row.activation, jnp.einsum("iab,ai...->bi...", root, row.delta)) for row in rows
    )


def _weighted_gram(weights: Sequence[Array], left: Rows, right: Rows) -> Array:
    """`J D^-1 J'` of two batches, `(p, rows, p, other rows)`; one product for all dense leaves."""
    pairs = list(zip(weights, left, right, strict=True))
    dense = [pair for pair in pairs if pair[1].activation is None]
    terms = [
        LeafRows(w * a.activation, a.delta).gram(b) for w, a, b in pairs if a.activation is not None
    ]
    if dense:
        ours = jnp.concatenate([w * a.delta for w, a, _ in dense], -1)
        others = jnp.concatenate([b.delta for _, _, b in dense], -1)
        terms.append(LeafRows(None, ours).gram(LeafRows(None, others)))
    return sum(terms[1:], terms[0])


def group_grams(left: Rows, right: Rows, of_leaf: tuple[int, ...], groups: int) -> Array:
    """Gram matrices of two batches for each group, `(groups, p rows, p other rows)`."""
    totals: list[Array | None] = [None] * groups
    for group, a, b in zip(of_leaf, left, right, strict=True):
        gram = a.gram(b)
        old = totals[group]
        totals[group] = gram if old is None else old + gram
    blocks = jnp.stack([total for total in totals if total is not None])
    outputs, rows = blocks.shape[1:3]
    return blocks.reshape(groups, outputs * rows, -1)
