"""Structures of different classes are different, also when their fields are alike."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from fisher8_jax._internal.trees import register_tree


@register_tree
@dataclasses.dataclass(frozen=True)
class Point:
    x: jax.Array
    y: jax.Array
    unit: str = dataclasses.field(default="m", metadata={"static": True})


@register_tree
@dataclasses.dataclass(frozen=True)
class Interval:
    low: jax.Array
    high: jax.Array
    unit: str = dataclasses.field(default="m", metadata={"static": True})


def test_classes_with_as_many_fields_have_different_structures():
    point, interval = Point(1.0, 2.0), Interval(1.0, 2.0)
    assert jax.tree.structure(point) != jax.tree.structure(interval)
    assert jax.tree.structure(point) == jax.tree.structure(Point(3.0, 4.0))


def test_static_fields_are_part_of_the_structure():
    assert jax.tree.structure(Point(1.0, 2.0)) != jax.tree.structure(Point(1.0, 2.0, unit="km"))


def test_leaves_have_names_and_come_back():
    point = Point(jnp.ones(2), jnp.zeros(2), unit="km")
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(point)]
    assert paths == [".x", ".y"]
    doubled = jax.jit(lambda p: jax.tree.map(lambda leaf: 2 * leaf, p))(point)
    assert type(doubled) is Point
    assert doubled.unit == "km"
    assert doubled.x[0] == 2


@pytest.mark.parametrize("count", [200])
def test_compiled_programs_are_not_mixed_up(count):
    """With so many classes a cache that compares structures alone answers wrongly now and then."""
    classes = []
    for index in range(count):
        cls = dataclasses.make_dataclass(f"C{index}", ["x", "y"], frozen=True)
        classes.append(register_tree(cls))
    identity = jax.jit(lambda tree: tree)
    for cls in classes:
        assert type(identity(cls(1.0, 2.0))) is cls
