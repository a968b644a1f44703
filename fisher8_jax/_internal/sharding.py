"""Arrays whose type names mesh axes: `jax.make_mesh` makes such axes, Explicit ones, by default."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

Tree = TypeVar("Tree")
Result = TypeVar("Result")


def with_auto_axes(function: Callable[..., Result], *arguments: Any) -> Result:
    """`function(*arguments)`, inside which the compiler places arrays as it does by default.

    Programs over Explicit axes must say where each intermediate array lies, which a function that
    serves any network cannot. Results are replicated; `place_like` brings them where they belong.
    Without Explicit axes it is a plain call.
    """
    mesh = _explicit_mesh(arguments)
    if mesh is None:
        return function(*arguments)
    axes = tuple(
        name
        for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
        if kind == AxisType.Explicit
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.sharding.auto_axes(function, axes=axes, out_sharding=everywhere)(*arguments)


def place_like(tree: Tree, like: Any) -> Tree:
    """`tree` with the sharding of the arrays of `like`, where their type has one."""

    def place(leaf: Any, model: Any) -> Any:
        if _explicit_mesh(model) is None:
            return leaf
        return jax.reshard(leaf, jax.typeof(model).sharding)

    return jax.tree.map(place, tree, like)


def check_outside_shard_map(name: str) -> None:
    """Refuses a call from inside `jax.shard_map`, where a device sees its own rows alone."""
    axes = getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ())
    if axes:
        raise ValueError(
            f"`{name}` cannot be called inside `jax.shard_map` (axes {', '.join(map(str, axes))}), "
            "where each device sees its own rows alone. Call it with sharded arrays instead."
        )


def _explicit_mesh(tree: Any) -> Any:
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            mesh = getattr(getattr(jax.typeof(leaf), "sharding", None), "mesh", None)
            if mesh is not None and AxisType.Explicit in mesh.axis_types:
                return mesh
    return None
