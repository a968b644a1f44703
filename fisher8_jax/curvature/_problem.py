"""A network, a batch and a damping: what every solver starts from."""

from typing import Any, NamedTuple

import jax
from chex import ArrayTree
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

from fisher8_jax._internal.numerics import AxisName
from fisher8_jax.curvature._linear import Linear
from fisher8_jax.curvature._plan import Plan
from fisher8_jax.curvature._scale import Scale, full_scale
from fisher8_jax.curvature._trace import Network, Pass
from fisher8_jax.curvature._whitening import Whitening
from fisher8_jax.families import Family


class Problem(NamedTuple):
    """The linear system of one batch, before anything is solved.

    Attributes:
        network: the traced network.
        plan: how each of its leaves enters the Gram matrix.
        leaves: its parameters.
        scale: the size of the damping for every leaf, or None.
        data: the leaves of the inputs.
        forward: the forward pass of the batch.
        dist: its predictions.
        whitening: their coordinates.
        counts: how many elements of every row count.
        elements: how many elements the mean runs over.
        damping: what is added to the whitened curvature.
        axis_name: the mapped axis that the rows are split over.
    """

    network: Network
    plan: Plan
    leaves: list[Array]
    scale: list[Scale] | None
    data: list[Array]
    forward: Pass
    dist: Family
    whitening: Whitening
    counts: Array
    elements: Array
    damping: Array
    axis_name: AxisName | None

    def deltas(self) -> Any:
        """The whitened outputs' derivatives with respect to the results of all uses.

        One backward pass for each output; first axis the output, second the row.
        """

        def pull_back(unit: Array) -> Any:
            vector = unit.reshape(*self.dist.batch_shape, -1)
            cotangent = jax.tree.leaves(self.dist.from_vector(vector))
            outputs = self.forward.outputs
            cast = [c.astype(o.dtype) for c, o in zip(cotangent, outputs, strict=True)]
            return self.forward.pull_back(cast)

        return jax.vmap(pull_back)(self.whitening.unit_cotangents())

    @property
    def is_trainable(self) -> bool:
        """Whether all leaves are floating-point."""
        return all(map(self.network.is_trainable, range(len(self.leaves))))

    def linearize(self) -> Linear:
        """The Jacobian of the whitened outputs as a function."""
        network, data = self.network, self.data
        chosen = [i for i, _ in enumerate(self.leaves) if network.is_trainable(i)]

        def predict(trainable: list[Array]) -> list[Array]:
            every = list(self.leaves)
            for index, leaf in zip(chosen, trainable, strict=True):
                every[index] = leaf
            return jax.vmap(lambda *example: jaxpr_as_fun(network.program)(*every, *example))(*data)

        leaves = [self.leaves[index] for index in chosen]
        _, derivative = jax.linearize(predict, leaves)
        roots = [lax.rsqrt(full_scale(self.scale[i])) for i in chosen] if self.scale else None
        return Linear(derivative, leaves, roots, self.dist, self.whitening)

    def movement(self, step: ArrayTree) -> Array:
        """How far a step of the parameters moves the whitened outputs, `(outputs, rows)`."""
        steps = jax.tree.leaves(step)
        return self.linearize().push(
            [s for index, s in enumerate(steps) if self.network.is_trainable(index)]
        )
