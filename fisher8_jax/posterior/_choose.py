"""Which form of a posterior fits: exact where memory and time allow, else an approximation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree

from fisher8_jax._internal.checks import check_choice
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import vectors_of
from fisher8_jax.posterior._report import FORMS

# What 'auto' takes at most: some minutes of one core.
_OPERATIONS = 5e12

# Rows at a time: enough for fast products, few enough for the cache.
_CHUNK = 128


class Sizes(NamedTuple):
    """What the cost depends on.

    Attributes:
        rows: of the data.
        outputs: of one row.
        params: how many are uncertain.
        groups: of the prior.
        positions: the largest number of outer products that a leaf adds up for one row.
    """

    rows: int
    outputs: int
    params: int
    groups: int
    positions: int

    def bytes_of(self, form: str, rows: int | None = None) -> float:
        """Of all matrices of a form."""
        if form == "primal":
            return 8 * 4 * float(self.params) ** 2
        unknowns = float((self.rows if rows is None else rows) * self.outputs)
        return 8 * (self.groups + 3) * unknowns**2

    def operations_of(self, form: str) -> float:
        """Of building and factorising it some times."""
        unknowns = float(self.rows * self.outputs)
        if form == "primal":
            return 2 * unknowns * float(self.params) ** 2 + 4 * float(self.params) ** 3
        return 4 * unknowns**3

    def chunk(self, form: str, memory: float) -> int:
        """How many rows at a time, so that working space is a small part of the memory."""
        if form in ("primal", "last_layer"):
            per_row = 8 * 6 * self.outputs * self.params
        else:
            per_row = 8 * 6 * self.outputs**2 * self.rows * max(1, self.positions) ** 2
        return int(np.clip(memory / 8 / per_row, 1, _CHUNK))


def choose_form(form: str, sizes: Sizes, memory: float) -> str:
    """'dual', 'primal', 'last_layer' or 'subset'."""
    check_choice("form", form, ("auto", *FORMS))
    if form in ("last_layer", "subset"):
        return form
    exact = {f: sizes.operations_of(f) for f in ("dual", "primal")}
    if form == "auto":
        fitting = {
            f: operations
            for f, operations in exact.items()
            if sizes.bytes_of(f) <= memory and operations <= _OPERATIONS
        }
        return min(fitting, key=lambda f: fitting[f]) if fitting else "last_layer"
    if sizes.bytes_of(form) > memory:
        raise ValueError(
            f"`form={form!r}` needs {sizes.bytes_of(form) / 1e9:.1f} GB for {sizes.rows:,} rows of "
            f"{sizes.outputs} outputs, {sizes.params:,} parameters and {sizes.groups} groups; "
            f"`memory` allows {memory / 1e9:.1f} GB. Raise `memory`, use "
            "`Prior(groups='one')`, or let `form='auto'` choose an approximation."
        )
    return form


def subset_rows(sizes: Sizes, memory: float) -> int:
    """How many rows the dual form can take."""
    by_memory = np.sqrt(memory / sizes.bytes_of("dual", rows=1))
    by_time = (_OPERATIONS / 4) ** (1 / 3) / sizes.outputs
    return max(1, min(sizes.rows, int(by_memory), int(by_time)))


def last_layer(network: Network, inputs: ArrayTree) -> tuple[int, ...]:
    """The leaves in which the outputs are affine all together, found by moving them.

    From the last leaf to the first, a leaf joins if the outputs of some rows still move by opposite
    amounts when all of them move by opposite steps.
    """
    some = jax.tree.map(lambda x: x[:16], inputs)
    every = jax.tree.leaves(network.params)
    noise = np.random.default_rng(0)
    steps = {i: noise.normal(size=np.shape(every[i])) for i in network.leaves}
    steps = {i: s * (1 + 3 * np.abs(every[i]).max(initial=0)) for i, s in steps.items()}
    found: list[int] = []
    for index in reversed(network.leaves):
        trial = [steps[i] * (i in found or i == index) for i in network.leaves]
        if float(_second_difference(network, trial, some)) < 1e-6:
            found.append(index)
    return tuple(sorted(found))


@jax.jit
def _second_difference(network: Network, steps: list, inputs: ArrayTree) -> jax.Array:
    """How far from opposite the movements of the outputs by opposite steps are, relatively."""

    def outputs(sign: float) -> jax.Array:
        leaves = [leaf + sign * s for leaf, s in zip(network.uncertain(), steps, strict=True)]
        moved = Network(network.replaced(leaves), network.predict_one, network.leaves)
        return vectors_of(moved.predict(inputs))

    forth, back = outputs(1.0) - outputs(0.0), outputs(-1.0) - outputs(0.0)
    scale = jnp.max(jnp.abs(forth)) + jnp.finfo(forth.dtype).tiny
    return jnp.max(jnp.abs(forth + back)) / scale
