"""One file for a trained model: named trees of arrays and a JSON header, without pickle.

Reading never runs code from the file: trees are rebuilt from a template of the caller, or come back
as nested dictionaries. How the bytes lie is told in `_format.py`.
"""

import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey

from fisher8_jax._internal.files import replacing
from fisher8_jax.artifacts._format import (
    MAX_DEPTH,
    ArtifactError,
    check_sizes,
    demand,
    digest_of,
    is_exact,
    read_array,
    read_header,
    reading,
    write_archive,
)
from fisher8_jax.artifacts._json import Json, check_json

_RECORDED = ("fisher8_jax", "jax", "flax", "optax", "numpy")


class Artifact(NamedTuple):
    """What a file holds.

    Attributes:
        trees: the saved trees by name (model, scaler, calibrator).
        config: the configuration, plain JSON.
        versions: the packages that wrote the file.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.artifacts import load_artifact, save_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.f8"
        >>> save_artifact(path, {}, config={"seed": 0})
        >>> artifact = load_artifact(path)
        >>> artifact.config, "jax" in artifact.versions
        ({'seed': 0}, True)
    """

    trees: dict[str, chex.ArrayTree]
    config: Json
    versions: dict[str, str]


def save_artifact(
    path: str | Path, trees: Mapping[str, chex.ArrayTree], *, config: Json | None = None
) -> None:
    """Writes trees of arrays and a configuration to one file, whole or not at all.

    Args:
        path: the file; an existing one is replaced in one step.
        trees: named pytrees of arrays, for instance `{"params": params, "scaler": scaler}`.
        config: anything that JSON can hold, for instance the arguments of the network.

    Raises:
        TypeError: something would not come back to the bit: text, objects, masked, structured and
            big-endian arrays, random keys, dictionaries with other keys than text and integers.

    Example:
        >>> import pathlib, tempfile
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.artifacts import load_artifact, save_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.f8"
        >>> save_artifact(path, {"params": {"w": jnp.ones(2)}}, config={"hidden": [50, 50]})
        >>> artifact = load_artifact(path)
        >>> artifact.trees["params"]["w"], artifact.config["hidden"]
        (array([1., 1.], dtype=float32), [50, 50])
    """
    _check_machine()
    entries, arrays = [], []
    for name, tree in trees.items():
        if not isinstance(name, str):
            raise TypeError(f"`trees` must have text as keys, got {name!r}.")
        for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            place = f"{name}{jax.tree_util.keystr(keys)}"
            array = _to_array(place, leaf)
            entry = {"tree": name, "path": _path(place, keys), "shape": list(array.shape)}
            entries.append(entry | {"dtype": array.dtype.name, "sha256": digest_of(array)})
            arrays.append(array)
    _check_places(entries)
    body = {
        "versions": _versions(),
        "config": check_json(config),
        "names": list(trees),
        "arrays": entries,
    }
    with replacing(Path(path)) as file:
        write_archive(file, body, arrays)


def load_artifact(path: str | Path, like: Mapping[str, chex.ArrayTree] | None = None) -> Artifact:
    """Reads a file that `save_artifact` wrote.

    Args:
        path: the file.
        like: templates by name, trees of arrays or of `jax.ShapeDtypeStruct` (as `jax.eval_shape`
            returns them). A tree with a template comes back in its structure, checked leaf by leaf
            before anything is read; one without comes back as nested dictionaries.

    Returns:
        The trees as NumPy arrays, the configuration and the versions.

    Raises:
        FileNotFoundError: there is no such file.
        ArtifactError: the file is foreign or damaged, or a tree does not fit its template. It is a
            `ValueError`.

    Example:
        >>> import pathlib, tempfile
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax.artifacts import load_artifact, save_artifact
        >>> params = {"layers": [jnp.zeros(2), jnp.ones(3)]}
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.f8"
        >>> save_artifact(path, {"params": params})
        >>> artifact = load_artifact(path, like={"params": jax.eval_shape(lambda: params)})
        >>> [leaf.shape for leaf in artifact.trees["params"]["layers"]]
        [(2,), (3,)]
    """
    _check_machine()
    path, like = Path(path), like or {}
    with reading(path) as archive:
        header = read_header(path, archive)
        entries: dict[str, dict[str, int]] = {name: {} for name in header["names"]}
        for index, entry in enumerate(header["arrays"]):
            entries[entry["tree"]][json.dumps(entry["path"])] = index
        for name, template in like.items():
            _check_template(path, name, entries, header["arrays"], template)
        check_sizes(archive, header)
        arrays = [read_array(archive, i, entry) for i, entry in enumerate(header["arrays"])]
        trees = {name: _nest(found, arrays) for name, found in entries.items()}
        demand(sum(map(len, entries.values())) == len(arrays), "two arrays have one place")
    for name, template in like.items():
        keys, structure = jax.tree_util.tree_flatten_with_path(template)
        order = [entries[name][json.dumps(_path(name, k))] for k, _ in keys]
        trees[name] = jax.tree.unflatten(structure, [arrays[index] for index in order])
    return Artifact(trees, header["config"], header["versions"])


def _to_array(place: str, leaf: object) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"`{place}` is a random key. Save `jax.random.key_data(key)` instead.")
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"`{place}` is a masked array, whose mask would be lost. Save `.data` and `.mask`."
        )
    array = np.asarray(leaf)
    if array.dtype.newbyteorder("=") != array.dtype and is_exact(array.dtype.newbyteorder("=")):
        raise TypeError(
            f"`{place}` must be little-endian, got dtype {array.dtype.str}. Save "
            "`array.astype(array.dtype.newbyteorder('='))`."
        )
    if not is_exact(array.dtype):
        raise TypeError(
            f"`{place}` must be an array of numbers, got {type(leaf).__name__} of dtype "
            f"{array.dtype}. Put settings and text into `config`."
        )
    return array


def _path(place: str, keys: KeyPath) -> list[str | int]:
    if len(keys) > MAX_DEPTH:
        raise TypeError(f"`{place[:60]}...` lies deeper than {MAX_DEPTH} levels.")
    return [_key(place, key) for key in keys]


def _key(place: str, key: object) -> str | int:
    value: object = str(key)
    if isinstance(key, DictKey | FlattenedIndexKey):
        value = key.key
    elif isinstance(key, SequenceKey):
        value = key.idx
    elif isinstance(key, GetAttrKey):
        value = key.name
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(
            f"`{place}`: dictionaries must have text or integers as keys, got {value!r} of type "
            f"{type(value).__name__}."
        )
    return value


def _check_places(entries: list[Json]) -> None:
    seen = set()
    for entry in entries:
        place = json.dumps([entry["tree"], entry["path"]])
        if place in seen:
            raise TypeError(f"Two arrays of `trees` have the same place, {place}.")
        seen.add(place)


def _check_machine() -> None:
    if sys.byteorder != "little":
        raise RuntimeError("Artifacts are little-endian, and this machine is big-endian.")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _nest(found: dict[str, int], arrays: list[np.ndarray]) -> chex.ArrayTree:
    """Nested dictionaries by path; a tree that is one array comes back as that array."""
    if list(found) == ["[]"]:
        return arrays[found["[]"]]
    root: dict[Any, Any] = {}
    for text, index in found.items():
        *parents, last = json.loads(text) or [None]
        node = root
        for key in parents:
            node = node.setdefault(key, {})
            demand(isinstance(node, dict), "an array lies inside another")
        demand(last is not None and last not in node, "an array lies inside another")
        node[last] = arrays[index]
    return root


def _check_template(
    path: Path,
    name: str,
    entries: dict[str, dict[str, int]],
    arrays: list[Json],
    template: chex.ArrayTree,
) -> None:
    if name not in entries:
        raise ArtifactError(
            f"{str(path)!r} holds no tree {name!r}; it holds: {', '.join(entries)}."
        )
    found = entries[name]
    leaves = jax.tree_util.tree_flatten_with_path(template)[0]
    wanted = {json.dumps(_path(name, keys)): leaf for keys, leaf in leaves}
    missing = [keys for keys in wanted if keys not in found]
    if missing or len(leaves) != len(found):
        raise ArtifactError(
            f"The tree {name!r} in {str(path)!r} does not have the structure of its template: "
            f"{len(found)} arrays in the file, {len(leaves)} in the template"
            + (f", {missing[0]} is not in the file." if missing else ".")
        )
    for keys, leaf in wanted.items():
        entry, form = arrays[found[keys]], _form(leaf)
        if (tuple(entry["shape"]), entry["dtype"]) != form:
            raise ArtifactError(
                f"{name}{keys} has shape {tuple(entry['shape'])} and dtype {entry['dtype']} in "
                f"{str(path)!r}, the template has {form[0]} and {form[1]}."
            )


def _form(leaf: object) -> tuple[tuple[int, ...], str]:
    array = leaf if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else np.asarray(leaf)
    return tuple(array.shape), array.dtype.name
