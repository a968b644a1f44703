"""Attacks on artifacts: damaged bytes, foreign files, crafted headers and archives."""

import hashlib
import io
import json
import pickle
import random
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fisher8_jax.artifacts import Artifact, ArtifactError, load_artifact, save_artifact
from tests.artifacts.sample import CONFIG, TREES
from tests.attacks import BAD
from tests.attacks.damage import damaged_copies

# Values that a careless reader stumbles over.
NASTY: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, "", "..", "object", "O", "S9", "i4,i4",
    "float128", [], [[]], [0], [-1], [2**62, 2**62], [1.5], ["a"], [None], {}, {"a": 1}, [0] * 99,
    ["x"] * 1000, "\x00", "\ud800",
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


def attack_with_foreign_files(folder: Path) -> Counter:
    """Files of other programs, and none."""
    arrays, other = io.BytesIO(), io.BytesIO()
    np.savez(arrays, a=np.zeros(3))
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("header.json", "{}")
    foreign = [b"", b"P", b"PK", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), pickle.dumps({"a": 1})]
    foreign += [b"\x89PNG\r\n\x1a\n", b"{}", bytes(10**5), arrays.getvalue(), other.getvalue()]
    return Counter(_never_valid(try_file(folder / "foreign", content)) for content in foreign)


def attack_headers(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Headers with one nasty value somewhere, their checksums made right again."""
    content, rng = sample_bytes(folder), random.Random(seed)
    members = _members(content)
    found: Counter = Counter()
    for _ in range(rounds):
        header = json.loads(members["header.json"])
        body = header["body"]
        parent, key = rng.choice(list(places(body)))
        if rng.random() < 0.2:
            del parent[key]
        else:
            parent[key] = rng.choice(NASTY)
        found[try_file(folder / "crafted", _pack(members, body))] += 1
    return found


def attack_archives(folder: Path) -> Counter:
    """Archives made to exhaust memory, to hide one array behind another, or to confuse."""
    members = _members(sample_bytes(folder))
    found: Counter = Counter()
    for craft in CRAFTS:
        found[_never_valid(try_file(folder / "crafted", craft(members)))] += 1
    return found


def _never_valid(outcome: str) -> str:
    return f"{BAD}read" if outcome == "read as it is valid" else outcome


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """All entries of dictionaries and lists in lists, as where they are and their key."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pack(
    members: dict[str, bytes],
    body: Any,
    *,
    compressed: int = zipfile.ZIP_STORED,
    header_compressed: int = zipfile.ZIP_STORED,
) -> bytes:
    """An archive with this header, its checksum right."""
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    header = json.dumps({"sha256": checksum, "body": body}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("header.json", header, header_compressed)
        for name, block in members.items():
            if name != "header.json":
                archive.writestr(name, block, compressed)
    return buffer.getvalue()


def _body(members: dict[str, bytes]) -> Any:
    return json.loads(members["header.json"])["body"]


def _bomb(members: dict[str, bytes]) -> bytes:
    """200 MB of zeros in 200 kB, all sizes declared as they are."""
    zeros = bytes(200_000_000)
    entry = {"tree": "a", "path": [], "shape": [len(zeros)], "dtype": "uint8"}
    entry["sha256"] = hashlib.sha256(zeros).hexdigest()
    body = _body(members) | {"names": ["a"], "arrays": [entry]}
    return _pack({"array_0": zeros}, body, compressed=zipfile.ZIP_DEFLATED)


def _large_header(members: dict[str, bytes]) -> bytes:
    body = _body(members) | {"config": "x" * 40_000_000}
    return _pack(members, body, header_compressed=zipfile.ZIP_DEFLATED)


def _declared(shape: list[int]) -> Callable[[dict[str, bytes]], bytes]:
    def craft(members: dict[str, bytes]) -> bytes:
        body = _body(members)
        body["arrays"][0]["shape"] = shape
        return _pack(members, body)

    return craft


def _with_paths(*paths: list[Any]) -> Callable[[dict[str, bytes]], bytes]:
    """Arrays at these places of one tree."""

    def craft(members: dict[str, bytes]) -> bytes:
        digest = hashlib.sha256(b"\0").hexdigest()
        entry = {"tree": "a", "shape": [1], "dtype": "uint8", "sha256": digest}
        body = _body(members) | {"names": ["a"], "arrays": [entry | {"path": p} for p in paths]}
        return _pack({f"array_{i}": b"\0" for i in range(len(paths))}, body)

    return craft


def _twice(members: dict[str, bytes]) -> bytes:
    """Two members of one name: which one is meant?"""
    content = _pack(members | {"array_X": members["array_0"]}, _body(members))
    return content.replace(b"array_X", b"array_1")


def _overlapping(members: dict[str, bytes]) -> bytes:
    """Ten entries of the directory that point to the same 100 kB, so 1 MB comes out of 100 kB."""
    block = bytes(100_000)
    digest = hashlib.sha256(block).hexdigest()
    entry = {"tree": "a", "shape": [len(block)], "dtype": "uint8", "sha256": digest}
    arrays = [entry | {"path": [index]} for index in range(10)]
    body = _body(members) | {"names": ["a"], "arrays": arrays}
    content = _pack({"array_0": block} | {f"array_{i}": b"" for i in range(1, 10)}, body)
    start = content.index(b"PK\x01\x02")  # the directory
    first = content.index(b"array_0", start) - 46
    fields = content[first + 16 : first + 28], content[first + 42 : first + 46]
    directory = bytearray(content[start:])
    for index in range(1, 10):
        place = directory.index(b"array_%d" % index) - 46
        directory[place + 16 : place + 28], directory[place + 42 : place + 46] = fields
    return content[:start] + bytes(directory)


def _encrypted(members: dict[str, bytes]) -> bytes:
    content = bytearray(_pack(members, _body(members)))
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1
    return bytes(content)


def _packed_size(members: dict[str, bytes]) -> bytes:
    """A header that says to take 1 GB in the archive, though not when unpacked."""
    content = bytearray(_pack(members, _body(members)))
    place = content.index(b"PK\x01\x02") + 20
    content[place : place + 4] = (2**30).to_bytes(4, "little")
    return bytes(content)


def _raw_header(text: bytes) -> Callable[[dict[str, bytes]], bytes]:
    def craft(members: dict[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("header.json", text)
        return buffer.getvalue()

    return craft


CRAFTS: list[Callable[[dict[str, bytes]], bytes]] = [
    _bomb,
    _large_header,
    _declared([10**12]),
    _declared([2**62, 2**62]),
    _declared([0, 2**62, 2**62]),
    _declared([1] * 70),
    _with_paths([], ["a"]),
    _with_paths(["a"], ["a", "b"]),
    _with_paths(["a", "b"], ["a"]),
    _with_paths(["a"], ["a"]),
    _with_paths(["a"] * 100_000),
    lambda members: _pack({k: v for k, v in members.items() if k != "array_1"}, _body(members)),
    lambda members: _pack(members | {"more": b"code"}, _body(members)),
    lambda members: _pack(members, _body(members) | {"format_version": 99}),
    lambda members: _pack(members, _body(members), compressed=zipfile.ZIP_BZIP2),
    _twice,
    _overlapping,
    _encrypted,
    _packed_size,
    _raw_header(b"[" * 1_000_000),
    _raw_header(b'{"body": {"a": NaN}, "sha256": ""}'),
    _raw_header(b'{"body": ' + b"9" * 100_000 + b"}"),
    _raw_header(b"\xff\xfe\x00"),
    _raw_header(b"null"),
]
