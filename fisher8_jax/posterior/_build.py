"""From rows of data to one of the two forms of a posterior, in chunks of rows."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax.curvature import LeafRows
from fisher8_jax.posterior._arithmetic import in_chunks, to_host
from fisher8_jax.posterior._dual import Dual, Rows, group_grams, whiten
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import Outputs, outputs_of
from fisher8_jax.posterior._primal import Primal
from fisher8_jax.posterior._prior import Groups


class Rowwise(NamedTuple):
    """The whitened rows of the Jacobian of some examples, and what the family says about them."""

    outputs: Outputs
    rows: Rows

    def take(self, places: np.ndarray) -> "Rowwise":
        """Some of the examples."""
        outputs = Outputs(*(array[places] for array in self.outputs))
        rows = tuple(
            LeafRows(None if r.activation is None else r.activation[places], r.delta[:, places])
            for r in self.rows
        )
        return Rowwise(outputs, rows)


Data = tuple[Network, ArrayTree, Array]


def build(form: str, data: Data, groups: Groups, chunk: int) -> tuple[Dual | Primal, float]:
    """The system of a form, and the summed NLL of the rows."""
    chunk = 16 * chunk  # fewer and larger ones than in predictions, which want the cache
    if form in ("primal", "last_layer"):
        return build_primal(*data, groups, chunk)
    seen = rowwise(*data, chunk)
    return build_dual(seen, groups, chunk), float(np.sum(seen.outputs.nll))


def rowwise(network: Network, inputs: ArrayTree, targets: Array, chunk: int) -> Rowwise:
    """The rows of all examples, not multiplied out where they need not be."""
    found = in_chunks(lambda part: _rowwise(network, *part), (inputs, targets), chunk)
    rows = tuple(
        row._replace(delta=np.ascontiguousarray(np.swapaxes(row.delta, 0, 1))) for row in found.rows
    )
    return Rowwise(found.outputs, rows)


def build_dual(seen: Rowwise, groups: Groups, chunk: int) -> Dual:
    """Gram matrices of all groups, some rows at a time."""
    root = seen.outputs.root
    rows, outputs = root.shape[:2]
    size, chunk = rows * outputs, min(chunk, rows)
    if chunk == rows:
        grams = np.asarray(_grams(seen.rows, seen.rows, groups))
        return Dual(seen.rows, root, grams, groups.of_leaf)
    grams = np.empty((len(groups.names), outputs, rows, size), root.dtype)
    for start in range(0, rows, chunk):
        part = seen.take(np.minimum(np.arange(start, start + chunk), rows - 1))
        block = np.asarray(_grams(part.rows, seen.rows, groups))
        block = block.reshape(len(grams), outputs, chunk, size)
        end = min(start + chunk, rows)
        grams[:, :, start:end] = block[:, :, : end - start]
    return Dual(seen.rows, root, grams.reshape(len(grams), size, size), groups.of_leaf)


def build_primal(
    network: Network, inputs: ArrayTree, targets: Array, groups: Groups, chunk: int
) -> tuple[Primal, float]:
    """`R' R` and the summed NLL, some rows at a time."""
    sizes = tuple(int(leaf.size) for leaf in network.uncertain())
    total = sum(sizes)
    rows = len(targets)
    chunk = min(chunk, rows)
    curvature, nll = jnp.zeros((total, total), network.uncertain()[0].dtype), 0.0
    for start in range(0, rows, chunk):
        places = np.minimum(np.arange(start, start + chunk), rows - 1)
        counts = (np.arange(start, start + chunk) < rows).astype(curvature.dtype)
        part = jax.tree.map(lambda x, places=places: np.asarray(x)[places], (inputs, targets))
        curvature, added = _add_curvature(curvature, network, *part, counts)
        nll += float(added)
    return Primal(to_host(curvature), groups.of_leaf, sizes), nll


def build_blocks(seen: Rowwise, groups: Groups, size: int) -> Dual:
    """Independent systems of `size` rows each, stacked along a new first axis."""
    number = len(seen.outputs.root) // size
    parts = [seen.take(np.arange(i * size, (i + 1) * size)) for i in range(number)]
    duals = [
        Dual((), p.outputs.root, _grams(p.rows, p.rows, groups), groups.of_leaf) for p in parts
    ]
    return jax.tree.map(lambda *arrays: np.stack(arrays), *duals)


@jax.jit
def _rowwise(network: Network, inputs: ArrayTree, targets: Array) -> Rowwise:
    """With the rows as the first axis of every array."""
    dist, rows = network.rows(inputs)
    seen = outputs_of(dist, targets)
    white = whiten(rows, seen.root)
    return Rowwise(
        seen, tuple(LeafRows(row.activation, jnp.swapaxes(row.delta, 0, 1)) for row in white)
    )


@functools.partial(jax.jit, static_argnums=2)
def _grams(left: Rows, right: Rows, groups: Groups) -> Array:
    return group_grams(left, right, groups.of_leaf, len(groups.names))


@functools.partial(jax.jit, donate_argnums=0)
def _add_curvature(
    curvature: Array, network: Network, inputs: ArrayTree, targets: Array, counts: Array
) -> tuple[Array, Array]:
    dist, rows = network.dense_rows(inputs)
    seen = outputs_of(dist, targets)
    root = seen.root * counts[:, None, None]
    white = jnp.einsum("iab,iap->ibp", root, rows).reshape(-1, rows.shape[-1])
    return curvature + white.T @ white, jnp.sum(seen.nll * counts)
