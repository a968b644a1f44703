"""Attacks by valid use: random trees, configurations and paths come back, or are refused."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax.artifacts import ArtifactError, load_artifact, save_artifact
from tests.artifacts.sample import TREES, header_of, pack
from tests.attacks import BAD, returned_or_refused

DTYPES = [
    "bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64",
    jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2, "complex128", jnp.int4, ">i4", "S3", "O",
]  # fmt: skip
KEYS = [
    "a",
    "b.c",
    "größe",
    "",
    " ",
    "0",
    "a\x00b",
    "__metadata__",
    "a/b",
    "'",
    '"',
    "\\",
    "\n",
    "😀",
]


def attack_trees(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Random trees: to the bit, or a `TypeError` and no file."""
    rng = random.Random(seed)
    return Counter(_try_tree(folder / "model", _tree(rng, 3)) for _ in range(rounds))


def _try_tree(path: Path, tree: Any) -> str:
    path.unlink(missing_ok=True)
    trees = {"tree": tree}
    try:
        save_artifact(path, trees)
        back = load_artifact(path, like=trees).trees
    except TypeError:
        return f"{BAD}half a file" if path.exists() else "refused"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    pairs = zip(jax.tree.leaves(back), map(np.asarray, jax.tree.leaves(trees)), strict=True)
    native = [(a, b.astype(b.dtype.newbyteorder("="))) for a, b in pairs]
    is_same = all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in native
    )
    return "back to the bit" if is_same else f"{BAD}changed"


def _tree(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth and kind < 0.3:
        return {rng.choice(KEYS): _tree(rng, depth - 1) for _ in range(rng.randrange(4))}
    if depth and kind < 0.5:
        return [_tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind < 0.55:
        return None
    return _array(rng)


def _array(rng: random.Random) -> Any:
    shape = [rng.choice((0, 1, 2, 5)) for _ in range(rng.randrange(5))]
    # A few dtypes are refused; most leaves should not be.
    dtype = np.dtype(rng.choice(DTYPES if rng.random() < 0.1 else DTYPES[:12]))
    values = np.random.default_rng(rng.randrange(2**32)).integers(-100, 100, shape)
    array = np.asarray(values).astype(dtype) if dtype != "S3" else np.zeros(shape, dtype)
    if rng.random() < 0.3:
        array = array.T
    if array.ndim and rng.random() < 0.3:
        array = array[::-1]
    return array


def attack_configs(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Random configurations: the same text as JSON, or a `TypeError`."""
    rng = random.Random(seed)
    return Counter(_try_config(folder / "model", _value(rng, 4)) for _ in range(rounds))


def _try_config(path: Path, config: Any) -> str:
    try:
        save_artifact(path, {}, config=config)
        back = load_artifact(path).config
    except TypeError:
        return "refused"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    return "back to the bit" if json.dumps(back) == json.dumps(config) else f"{BAD}changed"


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth and kind < 0.3:
        keys: list[Any] = KEYS if rng.random() < 0.9 else [1, None, True, 2.5]
        return {rng.choice(keys): _value(rng, depth - 1) for _ in range(rng.randrange(5))}
    if depth and kind < 0.6:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    odd = [(1, 2), {1}, np.float32(1.5), b"x", float("nan"), float("inf"), 1j]
    plain = [
        None,
        True,
        0,
        -1,
        2**63,
        10**30,
        5e-324,
        1e308,
        -0.0,
        0.1,
        *KEYS,
        "\ud800",
        "x" * 9999,
    ]
    return rng.choice(odd if rng.random() < 0.03 else plain)


def attack_splices(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Header, metadata or data of another intact file of the same shapes: never read."""
    rng = random.Random(seed)
    found: Counter = Counter()
    other = jax.tree.map(lambda leaf: np.ones_like(np.asarray(leaf)), TREES)
    for path, trees, config in (("a", TREES, {"n": 1}), ("b", other, {"n": 2})):
        save_artifact(folder / path, trees, config=config)
    first, second = (header_of((folder / name).read_bytes()) for name in "ab")
    for _ in range(rounds):
        cut = rng.randrange(1, len(first[2]))
        data = rng.choice([second[2], first[2][:cut] + second[2][cut:]])
        body = {**first[1], **{k: second[1][k] for k in rng.sample(["config", "sha256"], 1)}}
        content = rng.choice([pack(first[0], first[1], data), pack(first[0], body, first[2])])
        (folder / "spliced").write_bytes(content)
        outcome = returned_or_refused(lambda: load_artifact(folder / "spliced"), (ArtifactError,))
        unchanged = content in ((folder / "a").read_bytes(), (folder / "b").read_bytes())
        found[f"{BAD}read" if outcome == "returned" and not unchanged else outcome] += 1
    return found


def attack_paths(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Odd names and places to save to and to load from: back again, or an `OSError`."""
    rng = random.Random(seed)
    found: Counter = Counter()
    for index in range(rounds):
        place = folder / str(index)
        place.mkdir()
        found[_try_path(rng.choice(PLACES)(place, rng))] += 1
    return found


def _try_path(path: Path) -> str:
    try:
        save_artifact(path, {"a": np.arange(3)}, config={"n": 1})
        artifact = load_artifact(path)
    except (OSError, ArtifactError, ValueError) as error:
        named = (path.name, path.parent.name, "null byte")
        return "refused" if any(name in str(error) for name in named) else f"{BAD}unnamed"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    left = [each for each in path.parent.iterdir() if each.name.startswith(".fisher8-")]
    return f"{BAD}left behind" if left or artifact.config != {"n": 1} else "back to the bit"


def _name(rng: random.Random) -> str:
    return "".join(rng.choice("aä 😀.-_'\"\\\n*?[]$;&|") for _ in range(rng.randint(1, 20))) + "x"


def _link(place: Path, rng: random.Random, *, loop: bool = False) -> Path:
    (place / "link").symlink_to(place / ("link" if loop else "target"))
    return place / "link"


def _folder(place: Path, rng: random.Random) -> Path:
    (place / "folder" / "inside").mkdir(parents=True)
    return place / "folder"


def _below_a_file(place: Path, rng: random.Random) -> Path:
    (place / "file").write_bytes(b"")
    return place / "file" / "model"


def _replaces(content: bytes) -> Callable[[Path, random.Random], Path]:
    def make(place: Path, rng: random.Random) -> Path:
        (place / "old").write_bytes(content)
        return place / "old"

    return make


def _pipe(place: Path, rng: random.Random) -> Path:
    os.mkfifo(place / "pipe")  # replaced by a file, as any name is
    return place / "pipe"


PLACES: list[Callable[[Path, random.Random], Path]] = [
    lambda place, rng: place / _name(rng),
    lambda place, rng: place / _name(rng) / _name(rng),
    lambda place, rng: place / ".." / place.name / "." / "model",
    lambda place, rng: place / ("n" * rng.choice((200, 255, 256, 5000))),
    lambda place, rng: place / "nul\x00l",
    lambda place, rng: _link(place, rng, loop=True),
    _link,
    _folder,
    _below_a_file,
    _replaces(b""),
    _replaces(b"foreign"),
    _pipe,
]
