"""Attacks on the benchmarks' cells and on training states."""

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.store import Store
from fisher8_jax.artifacts import ArtifactError, TrainingCheckpoints
from fisher8_jax.artifacts._training_state import find_damage
from tests.attacks import BAD
from tests.attacks.damage import DAMAGES, damaged_copies

SPEC = {"rate": 0.1, "seed": 0}
RESULT = {"rmse": [0.1, 1 / 3, None], "name": "größe", "deep": {"a": [[1, 2], []]}}


def attack_cells(folder: Path, damage: str, rounds: int, seed: int = 0) -> Counter:
    """Damaged copies of a cell."""
    store = Store(folder)
    store.write("cell", spec=SPEC, result=RESULT, provenance={"command": "x"})
    content = store.path("cell").read_bytes()
    found: Counter = Counter()
    for copy in damaged_copies(content, damage, rounds, seed):
        store.path("cell").write_bytes(copy)
        found[_outcome(store)] += 1
    return found


def _outcome(store: Store) -> str:
    try:
        result = store.read("cell", SPEC)
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    if result is None:
        return "refused"
    return "read unchanged" if result == RESULT else f"{BAD}silently wrong"


def make_states(folder: Path) -> dict[Path, bytes]:
    """States after 5 and 10 steps; the files of the newer one that must not change."""
    with TrainingCheckpoints(folder) as checkpoints:
        for step in (5, 10):
            checkpoints.save(step, jnp.arange(400.0) + step)
    newest = folder / "10"
    files = [path for path in newest.glob("*/**/*") if path.is_file()]
    return {path: path.read_bytes() for path in [*files, newest / "checksums.json"]}


def attack_checksums(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Every file of a state, every kind of damage; is the damaged file named?"""
    files = make_states(folder)
    found: Counter = Counter()
    for path, content in sorted(files.items()):
        for damage in DAMAGES:
            for copy in damaged_copies(content, damage, rounds, seed):
                path.write_bytes(copy)
                named = find_damage(folder / "10")
                found["named" if named == path else f"{BAD}{named} named"] += 1
        path.write_bytes(content)
    return found


def attack_states(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Damage in the newest state, then restored in full: the state before it must come."""
    files = make_states(folder)
    rng = random.Random(seed)
    found: Counter = Counter()
    for round_ in range(rounds):
        path = rng.choice(sorted(files))
        (copy,) = damaged_copies(files[path], rng.choice(list(DAMAGES)), 1, round_)
        path.write_bytes(copy)
        found[_restored(folder)] += 1
        path.write_bytes(files[path])
    return found


def _restored(folder: Path) -> str:
    template: Any = jnp.arange(400.0)
    try:
        with warnings.catch_warnings(), TrainingCheckpoints(folder) as checkpoints:
            warnings.simplefilter("ignore")  # which file is damaged
            state, step = checkpoints.restore(template) or (template, 0)
    except ArtifactError:
        return f"{BAD}refused"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    expected = np.arange(400.0) + step
    if step != 5 or not np.array_equal(state, expected):
        return f"{BAD}silently wrong"
    return "the state before it restored"
