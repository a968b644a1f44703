"""Batches for a network that reads maps: of one size, prepared ahead, spread over devices."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from benchmarks.experiments.weak_lensing.data import Maps, Scales
from benchmarks.machinery.step import Batch

Item = TypeVar("Item")
Made = TypeVar("Made")
AHEAD = 3


class Inputs(NamedTuple):
    """What the network takes."""

    images: ArrayLike  # (batch, height, width, 1)
    where: ArrayLike  # (batch,), False for padding, which must not enter batch statistics


def epoch_numbers(rng: np.random.Generator, rows: np.ndarray, batch: int) -> list[np.ndarray]:
    """Shuffled numbers in batches, the last one as short as it comes."""
    shuffled = rng.permutation(rows)
    return [shuffled[first : first + batch] for first in range(0, len(rows), batch)]


def make_batch(maps: Maps, scales: Scales, numbers: np.ndarray, size: int) -> Batch:
    """One batch in standardised units, filled up to `size` with repetitions that do not count."""
    where = np.arange(size) < len(numbers)
    numbers = np.resize(numbers, size)
    targets = (maps.targets(numbers) - scales.target_shift) / scales.target_scale
    inputs = Inputs(maps.images(numbers), where)
    return Batch(inputs, targets.astype(np.float32), where[:, None])


def batch_sharding(batch: int, devices: list[Any] | None = None) -> NamedSharding:
    """Splits the first axis over as many devices as divide `batch`."""
    devices = jax.devices() if devices is None else devices
    count = max(n for n in range(1, len(devices) + 1) if batch % n == 0)
    return NamedSharding(Mesh(np.array(devices[:count]), ("batch",)), PartitionSpec("batch"))


def replicated(sharding: NamedSharding) -> NamedSharding:
    """The same devices, each with a whole copy."""
    return NamedSharding(sharding.mesh, PartitionSpec())


def prefetch(
    items: Iterable[Item], make: Callable[[Item], Made], *, ahead: int = AHEAD
) -> Iterator[Made]:
    """`make(item)` for every item, computed by a thread up to `ahead` items in advance.

    An error in `make` is raised here. The thread ends when the iteration does, also when it is
    given up half-way.
    """
    results: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=ahead)
    stop = threading.Event()

    def put(message: tuple[str, Any]) -> None:
        while not stop.is_set():
            try:
                return results.put(message, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                if stop.is_set():
                    return
                put(("item", make(item)))
            put(("end", None))
        except BaseException as error:
            put(("error", error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = results.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stop.set()
        thread.join()
