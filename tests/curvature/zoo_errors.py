"""How far the natural gradient of each odd network is from a dense float64 solve, in every use.

`python -m tests.curvature.zoo_errors` computes what is not stored, in a few minutes, and writes the
table of docs/whole_network.md.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store, write_atomically
from fisher8_jax import network_gradient
from tests.curvature.dense import cast_floats, dense_natural_gradient, relative_error
from tests.curvature.networks import ROWS
from tests.curvature.zoo import ZOO

COMMAND = "python -m tests.curvature.zoo_errors"
TABLE = Path(__file__).parents[2] / "docs" / "zoo_table.txt"
DAMPING, DEVICES = 0.1, 8
TARGETS = np.random.default_rng(9).normal(size=ROWS)


@functools.cache
def case(name: str) -> tuple[Any, Any, Any, jax.Array, np.ndarray]:
    """The network, what it is asked, and the gradient of the dense solve."""
    predict_one, params, inputs = ZOO[name]()
    targets = jnp.asarray(TARGETS)
    reference = dense_natural_gradient(predict_one, params, inputs, targets, DAMPING)
    return predict_one, params, inputs, targets, reference


def _step(predict_one: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda *args: network_gradient(predict_one, *args, damping=DAMPING, **options).gradient


def alone(name: str) -> float:
    """One step under `jit`."""
    predict_one, *args, reference = case(name)
    return relative_error(jax.jit(_step(predict_one))(*args), reference)


def in_float32(name: str) -> float:
    """The same with parameters, inputs and targets in single precision."""
    predict_one, *args, reference = case(name)
    small = cast_floats(tuple(args), jnp.float32)
    return relative_error(jax.jit(_step(predict_one))(*small), reference)


def under_vmap(name: str) -> float:
    """Two copies of the parameters, of which one is moved, beside each other."""
    predict_one, params, *data, reference = case(name)
    stacked = jax.tree.map(lambda leaf: jnp.stack([1.1 * leaf, leaf]), params)
    steps = jax.jit(jax.vmap(_step(predict_one), (0, None, None)))(stacked, *data)
    return relative_error(jax.tree.map(lambda leaf: leaf[1], steps), reference)


def under_shard_map(name: str) -> float:
    """A row on each of eight devices, two of them outside `where`; JAX checks what varies."""
    predict_one, params, *data, reference = case(name)
    padded = jax.tree.map(lambda leaf: leaf[np.arange(DEVICES) % ROWS], data)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec("data")

    def step(params: Any, inputs: Any, targets: jax.Array, where: jax.Array) -> Any:
        return _step(predict_one, axis_name="data", where=where)(params, inputs, targets)

    everywhere = (PartitionSpec(), rows, rows, rows)
    sharded = jax.shard_map(step, mesh=mesh, in_specs=everywhere, out_specs=PartitionSpec())
    found = jax.jit(sharded)(params, *padded, jnp.arange(DEVICES) < ROWS)
    return relative_error(found, reference)


def under_donation(name: str) -> float:
    """The step that a training loop compiles: parameters are given away and come back moved."""
    predict_one, params, *data, reference = case(name)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(params: Any) -> Any:
        gradient = _step(predict_one)(params, *data)
        return jax.tree.map(lambda p, g: p - g, params, gradient)

    given = jax.tree.map(jnp.copy, params)
    moved = train(given)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given) if leaf.size)
    return relative_error(jax.tree.map(lambda p, m: p - m, params, moved), reference)


USES: dict[str, Callable[[str], float]] = {
    "alone": alone,
    "vmap": under_vmap,
    "shard_map": under_shard_map,
    "donation": under_donation,
    "float32": in_float32,
}


def spec(name: str) -> dict[str, Any]:
    """What a stored result answers."""
    return {"network": name, "damping": DAMPING, "rows": ROWS, "devices": DEVICES, "seed": 9}


def table(store: Store) -> str:
    """Markdown: one row per network, the worst of each column at the end."""
    errors = {name: store.read(f"zoo/{name}", spec(name)) for name in ZOO}
    rows = ["| network | " + " | ".join(USES) + " |", "|---" * (1 + len(USES)) + "|"]
    worst = {use: max(errors[name][use] for name in ZOO) for use in USES}
    for name, found in {**errors, "**the worst**": worst}.items():
        cells = " | ".join(f"{found[use]:.0e}" for use in USES)
        rows.append(f"| {name.replace('_', ' ')} | {cells} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Computes what is missing."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_enable_x64", True)
    store = Store()
    for name in ZOO:
        if store.read(f"zoo/{name}", spec(name)) is None:
            result = {use: float(error(name)) for use, error in USES.items()}
            print(name, result, flush=True)
            store.write(
                f"zoo/{name}", spec=spec(name), result=result, provenance=provenance(COMMAND)
            )
    write_atomically(TABLE, table(store).encode())


if __name__ == "__main__":
    main()
