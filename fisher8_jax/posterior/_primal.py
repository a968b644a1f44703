"""The posterior in the space of parameters, for networks with few of them.

With `S = I + D^-1/2 R' R D^-1/2` the posterior covariance of the uncertain parameters is
`D^-1/2 S^-1 D^-1/2`. `R' R` is kept, so another `D` costs a factorisation and no derivative.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.batching import cholesky, solve_cholesky, solve_lower
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.families import Family
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import Outputs
from fisher8_jax.posterior._triangular import inverse_root, invert


@register_tree
@dataclasses.dataclass(frozen=True)
class Primal:
    """The curvature of the NLL in the uncertain parameters.

    Attributes:
        curvature: `R' R`, entries of all uncertain leaves in order; None where nothing but
            predictions is asked for.
        of_leaf: the group of each leaf.
        sizes: how many entries each leaf has.
    """

    curvature: Any
    of_leaf: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of uncertain parameters."""
        return sum(self.sizes)

    def to_predict(self) -> "Primal":
        """What `covariance` reads."""
        return dataclasses.replace(self, curvature=None)

    def factorize(self, log_precision: Array) -> Array:
        """The lower Cholesky factor of `S`."""
        root = self._scales(log_precision)
        scaled = root[:, None] * self.curvature * root[None]
        return cholesky(scaled + jnp.eye(self.size, dtype=scaled.dtype))

    def log_det(self, factor: Array) -> Array:
        """Of `S`, which has the determinant of `A` of the other form."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))

    def effective(self, factor: Array, log_precision: Array) -> Array:
        """The effective number of parameters of each group, `sum of 1 - (S^-1)_jj`."""
        known = 1 - jnp.sum(jnp.square(inverse_root(factor)), 0)
        return jnp.zeros_like(log_precision).at[self._of_entry()].add(known)

    def effective_on_host(self, log_precision: np.ndarray) -> np.ndarray:
        """`effective` by NumPy."""
        of_entry = self._of_entry()
        root = np.exp(-0.5 * log_precision)[of_entry]
        inverse = invert(root[:, None] * self.curvature * root + np.eye(self.size))
        return np.bincount(of_entry, 1 - np.diagonal(inverse), len(log_precision))

    def features(self, network: Network, inputs: ArrayTree) -> tuple[Family, Array]:
        """Predictions, and what `covariance` wants to know of the inputs."""
        return network.dense_rows(inputs)

    def covariance(self, factor: Array, log_precision: Array, rows: Array) -> Array:
        """Of the outputs of every example, `(rows, p, p)`."""
        half = self._half(factor, log_precision, rows)
        return jnp.sum(half[:, :, None] * half[:, None], -1)

    def joint_covariance(
        self, factor: Array, log_precision: Array, left: Array, right: Array
    ) -> Array:
        """Of the outputs at several inputs, `(rows, p, other rows, p)`."""
        halves = [self._half(factor, log_precision, rows) for rows in (left, right)]
        return jnp.einsum("ian,jbn->iajb", *halves)

    def draw(
        self, factor: Array, log_precision: Array, network: Network, inputs: ArrayTree, key: Array
    ) -> list[Array]:
        """A step of the uncertain leaves from the posterior."""
        noise = jax.random.normal(key, (self.size, 1), factor.dtype)
        step = solve_lower(factor, noise, transpose=True)[:, 0] * self._scales(log_precision)
        return self._split(step, network)

    def newton_step(
        self,
        factor: Array,
        log_precision: Array,
        network: Network,
        inputs: ArrayTree,
        seen: Outputs,
    ) -> list[Array]:
        """`- (R' R + D)^-1 gradient` of the uncertain leaves, the gradient that of the NLL."""
        scales = self._scales(log_precision)
        pulled = network.pull(seen.gradient, inputs)
        flat = scales * jnp.concatenate([leaf.reshape(-1) for leaf in pulled])
        return self._split(-scales * solve_cholesky(factor, flat[:, None])[:, 0], network)

    def _split(self, flat: Array, network: Network) -> list[Array]:
        parts, leaves = jnp.split(flat, np.cumsum(self.sizes)[:-1]), network.uncertain()
        return [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]

    def _half(self, factor: Array, log_precision: Array, rows: Array) -> Array:
        """`J D^-1/2 chol(S)^-T`, shape `(rows, p, entries)`."""
        scaled = (rows * self._scales(log_precision)[None, None]).reshape(-1, self.size)
        return solve_lower(factor, scaled.T).T.reshape(rows.shape)

    def _scales(self, log_precision: Array) -> Array:
        return jnp.exp(-0.5 * log_precision)[self._of_entry()]

    def _of_entry(self) -> np.ndarray:
        return np.repeat(np.asarray(self.of_leaf), np.asarray(self.sizes))
