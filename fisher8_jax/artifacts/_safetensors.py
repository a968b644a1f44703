"""One file for a trained model: trees of arrays and a configuration in the format of safetensors.

Tensors are named by their paths, `params/dense/kernel`. The metadata has one entry, `fisher8_jax`,
with JSON: the version of the format, the configuration, the packages that wrote the file, and a
SHA-256 of all that and of every array. Nothing in a file is trusted: safetensors compares sizes
and offsets with the length of the file, and whatever is wrong is an `ArtifactError`.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import KeyPath, keystr, tree_flatten_with_path

from fisher8_jax._internal.extras import needs_extra
from fisher8_jax._internal.files import write_atomically
from fisher8_jax.artifacts._json import ArtifactError, Json, check_json

_KEY, _FORMAT = "fisher8_jax", 1
_MAX_HEADER, _MAX_DEPTH = 16 * 2**20, 100

# safetensors' own reader for NumPy does not know the short floats.
_DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    "C64": np.dtype(np.complex64),
    "BF16": jnp.dtype(jnp.bfloat16),
    "F8_E4M3": jnp.dtype(jnp.float8_e4m3fn),
    "F8_E5M2": jnp.dtype(jnp.float8_e5m2),
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}


class Artifact(NamedTuple):
    """What a file holds.

    Attributes:
        trees: the saved trees by name (model, scaler, calibrator).
        config: the configuration, plain JSON.
        versions: the packages that wrote the file.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.artifacts import load_artifact, save_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
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
        TypeError: something would not come back to the bit: text, objects, masked and structured
            arrays, random keys, double complex numbers, 4-bit integers.

    Example:
        >>> import pathlib, tempfile
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.artifacts import load_artifact, save_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> save_artifact(path, {"params": {"w": jnp.ones(2)}}, config={"hidden": [50, 50]})
        >>> artifact = load_artifact(path)
        >>> artifact.trees["params"]["w"], artifact.config["hidden"]
        (array([1., 1.], dtype=float32), [50, 50])
    """
    with needs_extra("artifacts", package="safetensors", needed_by="save_artifact"):
        from safetensors.numpy import save
    arrays: dict[str, np.ndarray] = {}
    for tree_name, tree in trees.items():
        for keys, leaf in tree_flatten_with_path(tree)[0]:
            name = _name(tree_name, keys)
            if name in arrays:
                raise TypeError(f"Two arrays of `trees` have the same path, {name!r}.")
            arrays[name] = _to_array(name, leaf)
    body = {"format": _FORMAT, "versions": _versions(), "config": check_json(config)}
    text = json.dumps({**body, "sha256": _digest(body, arrays)})
    if len(text) > _MAX_HEADER // 2:  # escaped once more in the header, and the names beside it
        raise ValueError(f"`config` takes {len(text)} bytes as JSON. Put numbers into `trees`.")
    write_atomically(Path(path), save(arrays, metadata={_KEY: text}))


def load_artifact(path: str | Path, like: Mapping[str, chex.ArrayTree] | None = None) -> Artifact:
    """Reads a file that `save_artifact` wrote.

    Args:
        path: the file.
        like: templates by name, trees of arrays or of `jax.ShapeDtypeStruct` (as `jax.eval_shape`
            returns them). A tree with a template comes back in its structure, checked leaf by
            leaf; one without comes back as nested dictionaries with text keys.

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
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> save_artifact(path, {"params": params})
        >>> artifact = load_artifact(path, like={"params": jax.eval_shape(lambda: params)})
        >>> [leaf.shape for leaf in artifact.trees["params"]["layers"]]
        [(2,), (3,)]
    """
    with needs_extra("artifacts", package="safetensors", needed_by="load_artifact"):
        from safetensors import deserialize
    path = Path(path)
    content = _read(path)
    try:
        body, arrays = _parse(content, deserialize(content))
        config, versions, trees = body["config"], dict(body["versions"]), _nest(arrays)
    except _FromFutureError as error:
        raise ArtifactError(f"{str(path)!r} {error}") from None
    except Exception as error:  # safetensors, json and NumPy raise many kinds for bad bytes
        raise ArtifactError(
            f"{str(path)!r} is damaged: {error}. Restore it from a copy."
        ) from error
    for name, template in (like or {}).items():
        trees[name] = _restore(path, name, template, arrays)
    return Artifact(trees, config, versions)


class _FromFutureError(Exception):
    """The file has a later version of the format."""


def _name(tree: str, keys: KeyPath) -> str:
    if not isinstance(tree, str):
        raise TypeError(f"`trees` must have text as keys, got {tree!r}.")
    parts = [tree, *(keystr((key,), simple=True) for key in keys)]
    name = "/".join(parts)
    if any("/" in part for part in parts) or name == "__metadata__":
        raise TypeError(f"Keys of `trees` must not contain '/' or be '__metadata__', got {parts}.")
    if len(parts) > _MAX_DEPTH:
        raise TypeError(f"`{name[:60]}...` lies deeper than {_MAX_DEPTH} levels.")
    return name


def _to_array(name: str, leaf: object) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"`{name}` is a random key. Save `jax.random.key_data(key)` instead.")
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` is a masked array, whose mask would be lost. Save `.data` and `.mask`."
        )
    array = np.asarray(leaf)
    array = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    if array.dtype not in _DTYPES.values():
        raise TypeError(
            f"`{name}` must be an array of numbers that safetensors can hold, got "
            f"{type(leaf).__name__} of dtype {array.dtype}. Put settings and text into `config`."
        )
    return array


def _digest(body: Json, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("fisher8_jax", "jax", "numpy", "safetensors"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _read(path: Path) -> bytes:
    """The bytes of a file that can be an artifact; nothing else is read beyond its header."""
    if path.exists() and not path.is_file():  # a pipe would block, a device has no end
        raise ArtifactError(f"{str(path)!r} is not a regular file.")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        most = min(_MAX_HEADER, path.stat().st_size)  # reading allocates what it is asked for
        if size > most or f'"{_KEY}"'.encode() not in file.read(size):
            raise ArtifactError(
                f"{str(path)!r} is not a file that `save_artifact` wrote. Check the path; training "
                "states of Orbax and pickled estimators are read by their own tools."
            )
        file.seek(0)
        return file.read()


def _parse(content: bytes, tensors: Any) -> tuple[Json, dict[str, np.ndarray]]:
    """The metadata and the arrays of a file whose header and sizes are in order."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    body = json.loads(header["__metadata__"][_KEY])
    if type(body["format"]) is not int or body["format"] > _FORMAT:
        raise _FromFutureError(
            f"has format version {body['format']}, this package reads up to {_FORMAT}. It was "
            f"written by fisher8_jax {body['versions'][_KEY]}: upgrade to at least that."
        )
    arrays = {
        name: np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors
    }
    if body.pop("sha256") != _digest(body, arrays):
        raise ValueError("its content does not have the SHA-256 that it says")
    return body, arrays


def _nest(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = name.split("/")
        node = root
        for key in parents[:_MAX_DEPTH]:
            node = node.setdefault(key, {})
        if len(parents) >= _MAX_DEPTH or not isinstance(node, dict) or last in node:
            raise ValueError(f"the array {name[:60]!r} has no place in a tree")
        node[last] = array
    return root


def _restore(
    path: Path, name: str, template: chex.ArrayTree, arrays: Mapping[str, np.ndarray]
) -> chex.ArrayTree:
    leaves, structure = tree_flatten_with_path(template)
    wanted = {_name(name, keys): leaf for keys, leaf in leaves}
    found = {key for key in arrays if key.split("/")[0] == name}
    if found != set(wanted):
        raise ArtifactError(
            f"The tree {name!r} in {str(path)!r} does not have the structure of its template; "
            f"only one of them has {min(found ^ set(wanted))!r}."
        )
    for key, leaf in wanted.items():
        form = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        if (arrays[key].shape, arrays[key].dtype.name) != (form.shape, form.dtype.name):
            raise ArtifactError(
                f"{key!r} has shape {arrays[key].shape} and dtype {arrays[key].dtype} in "
                f"{str(path)!r}, the template has {form.shape} and {form.dtype}."
            )
    return jax.tree.unflatten(structure, [arrays[key] for key in wanted])
