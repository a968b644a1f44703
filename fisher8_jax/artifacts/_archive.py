"""One file for a trained model: named trees of arrays and a JSON header, without pickle.

The file is a zip archive with `header.json` and one raw block per array. The header holds the
format's name, the versions that wrote it, the configuration, and for each array its place in the
tree, dtype, shape and SHA-256. Reading never runs code from the file: trees are rebuilt from a
template of the caller, or come back as nested dictionaries.
"""

import hashlib
import importlib.metadata
import io
import json
import platform
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax._files import write_whole

FORMAT = "fisher8_jax artifact"
FORMAT_VERSION = 1
_HEADER = "header.json"
_RECORDED = ("fisher8_jax", "jax", "flax", "optax", "numpy")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no date in the file: the same content gives the same bytes


class ArtifactError(ValueError):
    """A file is not an artifact, or is damaged, or does not fit the template."""


class Artifact(NamedTuple):
    """What a file holds.

    Attributes:
        trees: the saved trees by name (model, scaler, calibrator).
        config: the configuration, plain JSON.
        versions: the packages that wrote the file.
    """

    trees: dict[str, Any]
    config: dict[str, Any]
    versions: dict[str, str]


def save_artifact(path: str | Path, trees: Mapping[str, Any], *, config: Any = None) -> None:
    """Writes trees of arrays and a configuration to one file, whole or not at all.

    Args:
        path: the file; an existing one is replaced in one step.
        trees: named pytrees of arrays, for instance `{"params": params, "scaler": scaler}`.
        config: anything that JSON can hold, for instance the arguments of the network.

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
    entries, blocks = [], []
    for name, tree in trees.items():
        for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            array = _to_array(f"{name}{jax.tree_util.keystr(keys)}", leaf)
            block = np.ascontiguousarray(array).tobytes()
            entry = {"tree": name, "path": [_key(k) for k in keys], "shape": list(array.shape)}
            entry |= {"dtype": array.dtype.name, "sha256": hashlib.sha256(block).hexdigest()}
            entries.append(entry)
            blocks.append(block)
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": _versions(),
        "config": _check_json(config),
        "names": list(trees),
        "arrays": entries,
    }
    write_whole(Path(path), _zip(body, blocks))


def load_artifact(path: str | Path, like: Mapping[str, Any] | None = None) -> Artifact:
    """Reads a file that `save_artifact` wrote.

    Args:
        path: the file.
        like: templates by name, trees of arrays or of `jax.ShapeDtypeStruct` (as `jax.eval_shape`
            returns them). A tree with a template comes back in its structure, checked leaf by leaf;
            one without comes back as nested dictionaries.

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
    content = Path(path).read_bytes()
    header, blocks = _unzip(str(path), content)
    flat: dict[str, list[tuple[list[Any], np.ndarray]]] = {name: [] for name in header["names"]}
    for entry, block in zip(header["arrays"], blocks, strict=True):
        if hashlib.sha256(block).hexdigest() != entry["sha256"]:
            raise _damaged(path, f"the array {entry['tree']}{entry['path']} has changed")
        array = np.frombuffer(block, jnp.dtype(entry["dtype"])).reshape(entry["shape"])
        flat[entry["tree"]].append((entry["path"], array))
    trees = {name: _nest(leaves) for name, leaves in flat.items()}
    for name, template in (like or {}).items():
        if name not in flat:
            raise ArtifactError(
                f"{str(path)!r} holds no tree {name!r}; it holds: {', '.join(flat)}."
            )
        trees[name] = _fit_template(path, name, flat[name], template)
    return Artifact(trees, header["config"], header["versions"])


def _to_array(name: str, leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"`{name}` is a random key. Save `jax.random.key_data(key)` instead.")
    array = np.asarray(leaf)
    if array.dtype.kind in "OUSMm":
        raise TypeError(
            f"`{name}` must be an array of numbers, got {type(leaf).__name__} of dtype "
            f"{array.dtype}. Put settings and text into `config`."
        )
    return array


def _key(key: Any) -> str | int:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            value = getattr(key, attribute)
            return value if isinstance(value, int) else str(value)
    return str(key)


def _check_json(config: Any) -> Any:
    try:
        text = json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`config` must be plain JSON: {error}.") from error
    if json.loads(text) != config:
        raise TypeError(
            "`config` would come back changed from JSON. Use dictionaries with text keys, lists, "
            "text and numbers only."
        )
    return config


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _zip(body: dict[str, Any], blocks: list[bytes]) -> bytes:
    text = json.dumps(body, sort_keys=True).encode()
    header = json.dumps({"sha256": hashlib.sha256(text).hexdigest(), "body": body}, sort_keys=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), header)
        for index, block in enumerate(blocks):
            archive.writestr(zipfile.ZipInfo(f"array_{index}", _EPOCH), block)
    return buffer.getvalue()


def _unzip(path: str, content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if _HEADER not in archive.namelist():
                raise _foreign(path)
            header = json.loads(archive.read(_HEADER))
            body = header["body"]
            text = json.dumps(body, sort_keys=True).encode()
            if hashlib.sha256(text).hexdigest() != header["sha256"]:
                raise _damaged(path, "its header has changed")
            _check_format(path, body)
            blocks = [archive.read(f"array_{index}") for index in range(len(body["arrays"]))]
    except ArtifactError:
        raise
    except Exception as error:  # zipfile, zlib, json and struct raise many kinds for bad bytes
        if content[:2] != b"PK":
            raise _foreign(path) from error
        raise _damaged(path, f"it cannot be unpacked ({error})") from error
    return body, blocks


def _check_format(path: str, body: dict[str, Any]) -> None:
    if body.get("format") != FORMAT:
        raise _foreign(path)
    if body["format_version"] > FORMAT_VERSION:
        raise ArtifactError(
            f"{path!r} has format version {body['format_version']}, this package reads up to "
            f"{FORMAT_VERSION}. It was written by fisher8_jax {body['versions']['fisher8_jax']}: "
            "upgrade to at least that."
        )


def _nest(leaves: list[tuple[list[Any], np.ndarray]]) -> Any:
    """Nested dictionaries by path; a tree that is one array comes back as that array."""
    if len(leaves) == 1 and not leaves[0][0]:
        return leaves[0][1]
    root: dict[Any, Any] = {}
    for path, array in leaves:
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = array
    return root


def _fit_template(
    path: str | Path, name: str, leaves: list[tuple[list[Any], np.ndarray]], template: Any
) -> Any:
    wanted, structure = jax.tree_util.tree_flatten_with_path(template)
    paths = [[_key(key) for key in keys] for keys, _ in wanted]
    found = {json.dumps(keys): array for keys, array in leaves}
    missing = [keys for keys in paths if json.dumps(keys) not in found]
    if missing or len(paths) != len(leaves):
        raise ArtifactError(
            f"The tree {name!r} in {str(path)!r} does not have the structure of its template: "
            f"{len(leaves)} arrays in the file, {len(paths)} in the template"
            + (f", {missing[0]} is not in the file." if missing else ".")
        )
    arrays = [found[json.dumps(keys)] for keys in paths]
    for keys, array, (_, leaf) in zip(paths, arrays, wanted, strict=True):
        if array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
            raise ArtifactError(
                f"{name}{keys} has shape {array.shape} and dtype {array.dtype} in {str(path)!r}, "
                f"the template has {np.shape(leaf)} and {leaf.dtype}."
            )
    return jax.tree.unflatten(structure, arrays)


def _foreign(path: str | Path) -> ArtifactError:
    return ArtifactError(
        f"{str(path)!r} is not a file that `save_artifact` wrote. Check the path; training states "
        "of Orbax and pickled estimators are read by their own tools."
    )


def _damaged(path: str | Path, what: str) -> ArtifactError:
    return ArtifactError(f"{str(path)!r} is damaged: {what}. Restore it from a copy.")
