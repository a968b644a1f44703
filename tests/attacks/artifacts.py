"""Attacks on artifacts: damaged bytes, foreign files, crafted headers."""

import io
import json
import pickle
import random
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fisher8_jax.artifacts import Artifact, ArtifactError, load_artifact, save_artifact
from fisher8_jax.artifacts._safetensors import _DTYPES
from tests.artifacts.sample import CONFIG, TREES, craft, header_of, pack
from tests.attacks import BAD
from tests.attacks.damage import damaged_copies

# Values that a careless reader stumbles over.
NASTY: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, "", "..", "object", "O", "F4", "i4,i4",
    "F128", [], [[]], [0], [-1], [10**9], [10**13], [2**62, 2**62], [1.5], ["a"], [None], {},
    {"a": 1}, [0] * 99, ["x"] * 1000, "\x00", "\ud800",
]  # fmt: skip


def sample_bytes(folder: Path) -> bytes:
    """An intact artifact."""
    save_artifact(folder / "intact", TREES, config=CONFIG)
    return (folder / "intact").read_bytes()


def try_file(path: Path, content: bytes, *, intact: Artifact | None = None) -> str:
    """What `load_artifact` makes of these bytes; memory is watched.

    Args:
        path: where to write them.
        content: the bytes.
        intact: what a damaged file may at most give; None for a crafted one, which may be valid.
    """
    path.write_bytes(content)
    tracemalloc.start()
    try:
        artifact = load_artifact(path)
    except ArtifactError:
        outcome = "refused"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    else:
        if intact is None:
            outcome = "read as it is valid"
        else:
            outcome = "read unchanged" if is_same(artifact, intact) else f"{BAD}silently wrong"
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # JSON as Python objects takes some twenty times its text.
    return outcome if peak < 20 * len(content) + 2**22 else f"{BAD}{peak} bytes allocated"


def is_same(ours: Artifact, theirs: Artifact) -> bool:
    """Equal to the bit."""
    if jax.tree.structure(ours) != jax.tree.structure(theirs) or ours[1:] != theirs[1:]:
        return False
    pairs = zip(jax.tree.leaves(ours.trees), jax.tree.leaves(theirs.trees), strict=True)
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def attack_bytes(folder: Path, damage: str, rounds: int, seed: int = 0) -> Counter:
    """Damaged copies of an intact artifact."""
    content = sample_bytes(folder)
    intact = load_artifact(folder / "intact")
    copies = damaged_copies(content, damage, rounds, seed)
    return Counter(try_file(folder / "damaged", copy, intact=intact) for copy in copies)


def attack_headers(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """One nasty value somewhere in the header, the checksum made right again where it can be."""
    content, rng = sample_bytes(folder), random.Random(seed)
    found: Counter = Counter()
    for _ in range(rounds):
        tensors, body, data = header_of(content)
        header = {"tensors": tensors, "body": body}
        parent, key = rng.choice(list(places(header)))
        if rng.random() < 0.2:
            del parent[key]
        else:
            parent[key] = rng.choice(NASTY)
        found[try_file(folder / "crafted", _with_checksum(header, data))] += 1
    return found


def _with_checksum(header: dict[str, Any], data: bytes) -> bytes:
    tensors, body = header.get("tensors"), header.get("body")
    try:
        arrays = {
            name: np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in deserialize(pack(tensors, body, data))
        }
        return pack(tensors, body, data, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError):
        return pack(tensors, body, data)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """All entries of nested dictionaries and lists, as the parent and the key."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def attack_with_crafted_files(folder: Path) -> Counter:
    """Files of other programs, and files made to exhaust memory or to confuse: none is valid."""
    outcomes = [try_file(folder / "crafted", content) for content in CRAFTED]
    return Counter(f"{BAD}read" if each == "read as it is valid" else each for each in outcomes)


def _tensors(*entries: tuple[str, str, list[int], int, int]) -> dict[str, Any]:
    return {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}
        for name, dtype, shape, first, last in entries
    }


def _named(*names: str) -> bytes:
    """One byte under each of these names, the checksum right."""
    tensors = _tensors(*((name, "U8", [1], i, i + 1) for i, name in enumerate(names)))
    arrays = {name: np.zeros(1, np.uint8) for name in names}
    return pack(tensors, BODY, bytes(len(names)), arrays)


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("fisher8_jax", "{}")
    return buffer.getvalue()


BODY = {"format": 1, "versions": {"fisher8_jax": "0"}, "config": None}
ONE = ("a", "F32", [1], 0, 4)
CRAFTED: list[bytes] = [
    b"",
    b"P",
    _zip(),
    pickle.dumps({"fisher8_jax": 1}),
    b"\x89PNG\r\n\x1a\n",
    b"{}",
    bytes(10**5),
    save({"a": np.zeros(3)}),
    save({"a": np.zeros(3)}, metadata={"fisher8_jax": "{}"}),
    *(
        pack(_tensors(("a", "F32", shape, 0, 4)), BODY, bytes(4), {})
        for shape in ([10**12], [2**62, 2**62], [0], [1] * 70, [2])
    ),
    pack(_tensors(("a", "F32", [0, 2**62, 2**62], 0, 0)), BODY, b"", {}),
    pack(_tensors(("a", "F4", [2], 0, 1)), BODY, bytes(1), {}),
    pack(_tensors(("a", "U8", [10**12], 0, 10**12)), BODY, bytes(9), {}),
    pack(_tensors(ONE), BODY, bytes(5), {"a": np.zeros(1, np.float32)}),
    pack(_tensors(ONE, ("b", "F32", [1], 0, 4)), BODY, bytes(4), {}),
    pack(_tensors(ONE, ("b", "F32", [1], 8, 12)), BODY, bytes(12), {}),
    pack(_tensors(ONE), BODY | {"sha256": 3}, bytes(4)),
    pack(_tensors(ONE), [1], bytes(4)),
    pack({}, BODY | {"format": 99}, b"", {}),
    pack({}, BODY | {"format": True}, b"", {}),
    pack({}, {"format": 1}, b"", {}),
    _named("a", "a/b"),
    _named("a/b", "a"),
    _named("/".join("a" * 100_000)),
    craft(b'{"fisher8_jax"' + b"[" * 1_000_000),
    craft(b'"fisher8_jax"\xff\xfe\x00'),
    craft(b'{"__metadata__": {"fisher8_jax": 1}}'),
    craft({"__metadata__": {"fisher8_jax": "[" * 100_000}}),
    craft({"__metadata__": {"fisher8_jax": json.dumps(BODY)[:-1] + ', "x": ' + "9" * 10**5 + "}"}}),
    craft(b'{"fisher8_jax": "' + b"x" * 40_000_000 + b'"}'),
]
