"""Descriptions: frozen dataclasses whose numbers are traced and whose structure is static.

A description is a pytree. Its numbers are leaves, so descriptions that differ in numbers alone
share compiled programs, and several of them stacked are the settings of runs side by side. All
else (names, functions, flags) is part of the structure. Descriptions print as the call that makes
them, compare by value, and go to plain JSON and back.
"""

import dataclasses
import numbers
from collections.abc import Iterable
from typing import Any, Self, TypeVar

import jax
import numpy as np
import optax
from jax.tree_util import GetAttrKey

Class = TypeVar("Class", bound=type)

KINDS: dict[str, type["Description"]] = {}
"""Every class of descriptions by its name, for `from_dict`."""


STATIC = {"static": True}
"""The metadata of fields that are part of the structure."""


def register_description(cls: Class) -> Class:
    """Makes a dataclass of descriptions a pytree that is rebuilt without its checks."""
    fields = dataclasses.fields(cls)

    def is_leaf(tree: object, field: dataclasses.Field) -> bool:
        value = getattr(tree, field.name)
        return not (field.metadata.get("static") or isinstance(value, optax.GradientTransformation))

    def flatten_with_keys(tree: object) -> tuple[list, tuple]:
        leaves = [field.name for field in fields if is_leaf(tree, field)]
        aux = tuple((f.name, getattr(tree, f.name)) for f in fields if f.name not in leaves)
        return [(GetAttrKey(name), getattr(tree, name)) for name in leaves], (tuple(leaves), aux)

    def flatten(tree: object) -> tuple[list, tuple]:
        children, aux = flatten_with_keys(tree)
        return [child for _, child in children], aux

    def unflatten(aux: tuple, children: Iterable) -> object:
        tree: object = object.__new__(cls)
        for name, value in (*zip(aux[0], children, strict=True), *aux[1]):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    KINDS[cls.__name__] = cls
    return cls


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Description:
    """What all descriptions share: printing, comparing, JSON."""

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_text(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None and not _is_default(self, field)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash(_key(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON from which `from_dict` makes an equal description.

        Raises:
            TypeError: a function or an Optax transformation is part of it.
        """
        fields = dataclasses.fields(self)
        found = {field.name: _to_json(field.name, getattr(self, field.name)) for field in fields}
        return {"kind": type(self).__name__, **found}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The description that `to_dict` wrote.

        Raises:
            ValueError: it is none, or of another kind.
        """
        found = _from_json(description)
        if not isinstance(found, cls):
            raise ValueError(
                f"`description` must be that of a {cls.__name__}, got {description!r}."
            )
        return found


def in_words(value: Any) -> str:
    """A number, or those of several runs, as short as can be."""
    if np.ndim(value) and not _is_traced(value):
        return "/".join(map(in_words, np.asarray(value).tolist()))
    return str(value) if _is_traced(value) else f"{float(value):g}"


def _is_default(tree: object, field: dataclasses.Field) -> bool:
    """Whether a field need not be printed; what is described by another description is."""
    value = getattr(tree, field.name)
    if isinstance(value, Description) or field.default is dataclasses.MISSING:
        return False
    return bool(_comparable(value) == _comparable(field.default))


def _text(value: object) -> str:
    if isinstance(value, optax.GradientTransformation):
        return "<Optax transformation>"
    if isinstance(value, np.ndarray | np.generic | jax.Array) and not _is_traced(value):
        return repr(np.asarray(value).tolist())
    return getattr(value, "__name__", repr(value))


def _is_traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)


def _comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array) and not _is_traced(value):
        array = np.asarray(value)
        return (array.shape, tuple(array.ravel().tolist())) if array.ndim else array.item()
    return value


def _key(tree: Any) -> tuple:
    fields = dataclasses.fields(tree)
    return (type(tree), *(_comparable(getattr(tree, field.name)) for field in fields))


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, Description):
        return value.to_dict()
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if value is None or isinstance(value, bool | str | numbers.Real):
        return value
    if type(value) is tuple:
        return [_to_json(name, item) for item in value]
    raise TypeError(
        f"`{name}` is {_text(value)}, which plain JSON cannot hold. Use names and numbers, or "
        "describe the method in code again where it is needed."
    )


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return _as_tuple(value) if isinstance(value, list) else value
    settings = {name: _from_json(item) for name, item in value.items() if name != "kind"}
    try:
        return KINDS[value["kind"]](**settings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{value!r} is no description that `to_dict` wrote: {error}.") from error


def _as_tuple(value: list) -> Any:
    """A list of numbers is that of runs side by side; of others, a tuple."""
    if value and all(isinstance(item, numbers.Real) for item in value):
        return np.asarray(value)
    return tuple(_as_tuple(item) if isinstance(item, list) else item for item in value)
