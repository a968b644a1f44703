"""A network at its parameters: what the two forms of a posterior ask of it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.trees import register_tree
from fisher8_jax.curvature import LeafRows, jacobian_rows
from fisher8_jax.families import Family
from fisher8_jax.posterior._outputs import vectors_of

PredictOne = Callable[[Any, Any], Family]


@register_tree
@dataclasses.dataclass(frozen=True)
class Network:
    """A prediction function, its parameters, and which leaves of them are uncertain."""

    params: ArrayTree
    predict_one: PredictOne = dataclasses.field(metadata={"static": True})
    leaves: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def predict(self, inputs: ArrayTree) -> Family:
        """The predictions of a batch."""
        return jax.vmap(self.predict_one, (None, 0))(self.params, inputs).widen()

    def outputs(self, inputs: ArrayTree) -> int:
        """How many outputs a row has."""
        one = jax.tree.map(lambda x: x[:1], inputs)
        return jax.eval_shape(lambda n, x: vectors_of(n.predict(x)), self, one).shape[1]

    def uncertain(self) -> list[Array]:
        """The leaves that are not fixed."""
        every = jax.tree.leaves(self.params)
        return [jnp.asarray(every[i]) for i in self.leaves]

    def replaced(self, uncertain: list[Array]) -> ArrayTree:
        """The parameters with other values of the uncertain leaves."""
        every, structure = jax.tree.flatten(self.params)
        for index, leaf in zip(self.leaves, uncertain, strict=True):
            every[index] = leaf
        return jax.tree.unflatten(structure, every)

    def spread(self, steps: list[Array]) -> ArrayTree:
        """Steps of the uncertain leaves as a tree like the parameters, 0 elsewhere."""
        every, structure = jax.tree.flatten(self.params)
        every = [jnp.zeros_like(leaf) for leaf in every]
        for index, step in zip(self.leaves, steps, strict=True):
            every[index] = step
        return jax.tree.unflatten(structure, every)

    def rows(self, inputs: ArrayTree) -> tuple[Family, tuple[LeafRows, ...]]:
        """Predictions, and the Jacobian's rows of the uncertain leaves."""
        dist, rows = jacobian_rows(self.predict_one, self.params, inputs)
        found = [rows[i] for i in self.leaves]
        return dist.widen(), tuple(row for row in found if row is not None)

    def dense_rows(self, inputs: ArrayTree) -> tuple[Family, Array]:
        """Predictions, and the Jacobian `(rows, p, entries of the uncertain leaves)`."""

        def outputs(leaves: list[Array], example: ArrayTree) -> tuple[Array, Family]:
            dist = self.predict_one(self.replaced(leaves), example)
            return dist.widen().to_vector().reshape(-1), dist.widen()

        jacobian = jax.vmap(jax.jacrev(outputs, has_aux=True), (None, 0))
        parts, dist = jacobian(self.uncertain(), inputs)
        flat = [part.reshape(*part.shape[:2], -1) for part in parts]
        return dist, jnp.concatenate(flat, -1)

    def push(self, steps: list[Array], inputs: ArrayTree) -> Array:
        """The Jacobian times steps of the uncertain leaves, `(rows, p)`."""

        def outputs(leaves: list[Array]) -> Array:
            network = dataclasses.replace(self, params=self.replaced(leaves))
            return vectors_of(network.predict(inputs))

        return jax.jvp(outputs, (self.uncertain(),), (steps,))[1]

    def pull(self, vectors: Array, inputs: ArrayTree) -> list[Array]:
        """The transposed Jacobian times `(rows, p)`."""
        push = functools.partial(self.push, inputs=inputs)
        return jax.linear_transpose(push, self.uncertain())(vectors)[0]
