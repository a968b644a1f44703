"""The file format of artifacts: a zip archive of a JSON header and raw blocks.

    header.json   {"sha256": of the body, "body": {format, format_version, versions, config,
                   names: of the trees, arrays: [{tree, path, shape, dtype, sha256}, ...]}}
    array_0 ...   the bytes of each array: C order, little-endian, not compressed

Nothing in a file is trusted. Sizes are compared with the header and with the length of the file
before anything is allocated, and whatever is wrong is an `ArtifactError`.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from fisher8_jax.artifacts._json import Json

FORMAT = "fisher8_jax artifact"
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 16 * 2**20
MAX_DEPTH = 100

_HEADER = "header.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no date in the file: the same content gives the same bytes
_DTYPES = {
    dtype.name: dtype
    for dtype in (
        *map(np.dtype, ("bool", "complex64", "complex128", "float16", "float32", "float64")),
        *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *map(jnp.dtype, (jnp.bfloat16, jnp.int4, jnp.uint4)),
        *map(jnp.dtype, (jnp.float8_e4m3b11fnuz, jnp.float8_e4m3fn, jnp.float8_e4m3fnuz)),
        *map(jnp.dtype, (jnp.float8_e5m2, jnp.float8_e5m2fnuz)),
    )
}


class ArtifactError(ValueError):
    """A file is not an artifact, or is damaged, or does not fit the template.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.artifacts import ArtifactError, load_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.f8"
        >>> _ = path.write_bytes(b"something else")
        >>> try:
        ...     load_artifact(path)
        ... except ArtifactError as error:
        ...     print("foreign")
        foreign
    """


class _BrokenRuleError(ValueError):
    """What a file says contradicts the format."""


class _BoundedReader(io.BufferedReader):
    """Asks for no more than there is: a damaged directory may speak of gigabytes.

    A plain file allocates what it is asked for before it looks how much it has.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(rest if size is None or size < 0 else min(size, rest))


def is_exact(dtype: np.dtype) -> bool:
    """True if arrays of this dtype come back to the bit."""
    # By equality: a big-endian dtype and a structured one have the names of others.
    return _DTYPES.get(dtype.name) == dtype


def block_of(array: np.ndarray) -> memoryview:
    """The bytes of an array, not copied if they lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_archive(file: BinaryIO, body: Json, arrays: list[np.ndarray]) -> None:
    """Writes header and blocks."""
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, **body}
    header = json.dumps({"sha256": _digest(_text(body)), "body": body}, sort_keys=True).encode()
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(
            f"`config` and the names of the arrays take {len(header)} bytes as JSON, more than "
            f"{MAX_HEADER_BYTES}. Put numbers into `trees`."
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), header)
        for index, array in enumerate(arrays):
            archive.writestr(zipfile.ZipInfo(f"array_{index}", _EPOCH), block_of(array))


def digest_of(array: np.ndarray) -> str:
    """The SHA-256 of an array's bytes."""
    return _digest(block_of(array))


@contextlib.contextmanager
def reading(path: Path) -> Iterator[zipfile.ZipFile]:
    """The open archive; whatever goes wrong in the block is an `ArtifactError`."""
    with _BoundedReader(io.FileIO(path)) as file:
        is_zip = file.read(2) == b"PK"
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except ArtifactError:
            raise
        except _BrokenRuleError as error:
            raise damaged(path, str(error)) from error
        except Exception as error:  # zipfile, zlib, json and struct raise many kinds for bad bytes
            if not is_zip:
                raise _foreign(path) from error
            raise damaged(path, f"it cannot be unpacked ({error})") from error


def read_header(path: Path, archive: zipfile.ZipFile) -> Json:
    """The header's body, every field checked."""
    names = archive.namelist()
    if _HEADER not in names:
        raise _foreign(path)
    demand(len(set(names)) == len(names), "a name occurs twice in its archive")
    info = archive.getinfo(_HEADER)
    demand(info.file_size <= MAX_HEADER_BYTES, "its header is too large")
    demand(info.compress_type == zipfile.ZIP_STORED, "its header is compressed")
    header = json.loads(archive.read(info), parse_constant=_refuse_constant)
    demand(isinstance(header, dict) and isinstance(header.get("body"), dict), "it has no header")
    body = header["body"]
    demand(_digest(_text(body)) == header.get("sha256"), "its header has changed")
    _check_version(path, body)
    _check_body(body)
    return body


def check_sizes(archive: zipfile.ZipFile, body: Json) -> None:
    """Compares the blocks with what the header declares and with the length of the file.

    Blocks are not compressed, so a file never needs more memory than its own length.
    """
    names = [f"array_{index}" for index in range(len(body["arrays"]))]
    demand(set(archive.namelist()) == {_HEADER, *names}, "its arrays are not those of its header")
    for info in archive.infolist():
        is_raw = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        demand(is_raw, f"{info.filename} is compressed")
    for name, entry in zip(names, body["arrays"], strict=True):
        declared = math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize
        demand(archive.getinfo(name).file_size == declared, f"{name} has not its declared size")
    assert archive.fp is not None
    length = archive.fp.seek(0, 2)
    demand(sum(info.file_size for info in archive.infolist()) <= length, "its arrays overlap")


def read_array(archive: zipfile.ZipFile, index: int, entry: Json) -> np.ndarray:
    """One array, compared with its checksum."""
    block = archive.read(f"array_{index}")
    place = f"{entry['tree']}{entry['path']}"
    demand(_digest(block) == entry["sha256"], f"the array {place} has changed")
    return np.frombuffer(block, _DTYPES[entry["dtype"]]).reshape(entry["shape"])


def demand(condition: bool, otherwise: str) -> None:
    """Ends reading with the reason `otherwise`."""
    if not condition:
        raise _BrokenRuleError(otherwise)


def damaged(path: Path, what: str) -> ArtifactError:
    """The error for a file that was an artifact once."""
    return ArtifactError(f"{str(path)!r} is damaged: {what}. Restore it from a copy.")


def _foreign(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{str(path)!r} is not a file that `save_artifact` wrote. Check the path; training states "
        "of Orbax and pickled estimators are read by their own tools."
    )


def _check_version(path: Path, body: Json) -> None:
    if body.get("format") != FORMAT:
        raise _foreign(path)
    version: Any = body.get("format_version")
    writers: Any = body.get("versions")
    demand(type(version) is int and version >= 1, "its format version is not a number")
    demand(isinstance(writers, dict), "it does not say what wrote it")
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{str(path)!r} has format version {version}, this package reads up to "
            f"{FORMAT_VERSION}. It was written by fisher8_jax {writers.get('fisher8_jax')}: "
            "upgrade to at least that."
        )


def _check_body(body: Json) -> None:
    names: Any = body.get("names")
    arrays: Any = body.get("arrays")
    demand("config" in body, "it has no configuration")
    demand(isinstance(names, list), "it has no list of names")
    demand(all(isinstance(name, str) for name in names), "a name is no text")
    demand(len(set(names)) == len(names), "a name occurs twice")
    demand(isinstance(arrays, list), "it has no list of arrays")
    for entry in arrays:
        demand(isinstance(entry, dict), "an array has no description")
        demand(entry.get("tree") in names, "an array belongs to no tree")
        demand(_is_path(entry.get("path")), "an array has no place in its tree")
        demand(_is_shape(entry.get("shape")), "an array has no shape")
        demand(_is_text(entry.get("dtype")) and entry["dtype"] in _DTYPES, "a dtype is unknown")
        demand(_is_text(entry.get("sha256")), "an array has no checksum")


def _is_path(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_DEPTH
        and all(type(key) in (str, int) for key in value)
    )


def _is_shape(value: object) -> bool:
    # NumPy itself says how many axes there may be; 32 is its oldest answer.
    return (
        isinstance(value, list)
        and len(value) <= 32
        and all(type(size) is int and 0 <= size < 2**63 for size in value)
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _refuse_constant(name: str) -> None:
    raise _BrokenRuleError(f"its header holds {name}")


def _text(body: Json) -> bytes:
    return json.dumps(body, sort_keys=True, allow_nan=False).encode()


def _digest(block: bytes | memoryview) -> str:
    return hashlib.sha256(block).hexdigest()
