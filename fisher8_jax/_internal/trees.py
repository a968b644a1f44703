"""Arrays of fewer axes beside arrays of more, and dataclasses as pytrees that tell classes apart.

`jax.tree_util.register_dataclass` makes structures that compare equal for any two classes with as
many fields, so a cache such as that of `jax.jit` may answer with a program compiled for the other
class. Here the class is part of the structure.
"""

import dataclasses
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import chex
import jax
import numpy as np
from jax import Array
from jax.tree_util import GetAttrKey

SomeArray = TypeVar("SomeArray", Array, np.ndarray)


def append_axes(x: SomeArray, ndim: int) -> SomeArray:
    """`x` with axes of length 1 appended, `ndim` in all: its own axes meet the first ones."""
    return x.reshape(x.shape + (1,) * (ndim - x.ndim))


Class = TypeVar("Class", bound=type)


def array_fields(tree: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields that are leaves, in order."""
    fields = dataclasses.fields(tree)
    return tuple(field.name for field in fields if not field.metadata.get("static", False))


def register_tree(cls: Class) -> Class:
    """Registers a dataclass as a pytree; fields with the metadata `static` are no leaves."""
    leaves = array_fields(cls)
    static = [field.name for field in dataclasses.fields(cls) if field.name not in leaves]
    keys = [GetAttrKey(name) for name in leaves]

    def flatten(tree: object) -> tuple[list[chex.ArrayTree], tuple[Hashable, ...]]:
        aux = (cls, *(getattr(tree, name) for name in static))
        return [getattr(tree, name) for name in leaves], aux

    def flatten_with_keys(
        tree: object,
    ) -> tuple[list[tuple[GetAttrKey, chex.ArrayTree]], tuple[Hashable, ...]]:
        children, aux = flatten(tree)
        return list(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple[Hashable, ...], children: Iterable[chex.ArrayTree]) -> object:
        values = dict(zip(leaves, children, strict=True))
        return cls(**values, **dict(zip(static, aux[1:], strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
