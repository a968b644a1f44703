"""Row numbers of shuffled epochs; drawn with NumPy, so any other implementation can take them."""

import numpy as np


def shuffled_rows(
    rng: np.random.Generator, rows: int, *, batch: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (steps, batch) from shuffled epochs without their partial batch.

    Returns:
        The rows, and for each step whether it begins an epoch.
    """
    if rows < batch:
        raise ValueError(f"`batch` must not exceed the {rows} training rows, got {batch}.")
    per_epoch = rows // batch
    epochs = -(-steps // per_epoch)
    shuffled = [rng.permutation(rows)[: per_epoch * batch] for _ in range(epochs)]
    order = np.concatenate(shuffled).reshape(-1, batch)[:steps].astype(np.int32)
    return order, np.arange(steps) % per_epoch == 0


def shuffled_epoch(
    rng: np.random.Generator, rows: int, *, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (steps, batch) of one shuffled epoch, its partial batch kept and padded.

    Returns:
        The rows, and for each of them whether it counts: False for padding.
    """
    steps = -(-rows // batch)
    order = np.pad(rng.permutation(rows), (0, steps * batch - rows)).astype(np.int32)
    return order.reshape(steps, batch), np.arange(steps * batch).reshape(steps, batch) < rows
