"""The whitened Jacobian as a pair of functions, for solvers that form no matrix."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fisher8_jax._fisher8 import vary_over
from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.curvature._whitening import Whitening
from fisher8_jax.families import Family


class Linear(NamedTuple):
    """The whitened Jacobian of the trainable leaves, as two functions; a pytree.

    Attributes:
        derivative: the linear function from steps of the leaves to steps of the outputs.
        leaves: the parameters, for their shapes.
        roots: `D^-1/2` for every leaf, or None.
        dist: the predictions, for their shape.
        whitening: their coordinates.
    """

    derivative: Any
    leaves: list[Array]
    roots: list[Array] | None
    dist: Family
    whitening: Whitening

    def push(self, step: list[Array]) -> Array:
        """The whitened movement of the outputs, `(outputs, rows)`."""
        moved = self.derivative([s.astype(x.dtype) for s, x in zip(step, self.leaves, strict=True)])
        tangent = jax.tree.unflatten(jax.tree.structure(self.dist), moved)
        return outputs_first(self.whitening.whiten(tangent.widen().to_vector()))

    def pull(self, outputs: Array) -> list[Array]:
        """The transpose of `push`."""
        return jax.linear_transpose(self.push, self.leaves)(outputs)[0]

    def gram_product(self, outputs: Array, axis_name: AxisName | None) -> Array:
        """`J D^-1 J'` times `outputs`."""
        step = self.pull(outputs)
        if axis_name is not None:
            step = vary_over(axis_name, lax.psum(step, axis_name))
        if self.roots is not None:
            step = [s * jnp.square(root) for s, root in zip(step, self.roots, strict=True)]
        return self.push(step)


def outputs_first(vectors: Array) -> Array:
    """From `batch_shape + (p,)` to `(outputs, rows)`."""
    return vectors.reshape(vectors.shape[0], -1).T


def rows_first(outputs: Array, dist: Family) -> Array:
    """From `(outputs, rows)` to `batch_shape + (p,)`."""
    return outputs.T.reshape(*dist.batch_shape, -1)
