"""Damage to bytes: what disks, networks and editors do to a file."""

import random
from collections.abc import Callable, Iterator


def flip(content: bytes, rng: random.Random) -> bytes:
    """One bit, somewhere."""
    damaged = bytearray(content)
    damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    """The end is missing."""
    return content[: rng.randrange(len(content))]


def overwrite(content: bytes, rng: random.Random) -> bytes:
    """A stretch holds something else."""
    start, length = rng.randrange(len(content)), rng.randint(1, 64)
    noise = rng.choice([rng.randbytes(length), bytes(length), b"\xff" * length])
    return (content[:start] + noise + content[start + length :])[: len(content)]


def insert(content: bytes, rng: random.Random) -> bytes:
    """Something was pushed in."""
    start = rng.randrange(len(content))
    return content[:start] + rng.randbytes(rng.randint(1, 64)) + content[start:]


def remove(content: bytes, rng: random.Random) -> bytes:
    """A stretch is gone."""
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 64) :]


def swap(content: bytes, rng: random.Random) -> bytes:
    """Two stretches have changed places."""
    a, b = sorted(rng.sample(range(len(content)), 2))
    length = min(rng.randint(1, 64), b - a, len(content) - b)
    first, second = content[a : a + length], content[b : b + length]
    return content[:a] + second + content[a + length : b] + first + content[b + length :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped bits": flip,
    "truncated": cut,
    "overwritten stretches": overwrite,
    "inserted bytes": insert,
    "removed bytes": remove,
    "swapped stretches": swap,
}


def damaged_copies(content: bytes, damage: str, rounds: int, seed: int) -> Iterator[bytes]:
    """Copies that differ from `content`, the same for the same seed."""
    rng = random.Random(f"{damage} {seed}")
    made = 0
    while made < rounds:
        copy = DAMAGES[damage](content, rng)
        if copy != content:
            made += 1
            yield copy
