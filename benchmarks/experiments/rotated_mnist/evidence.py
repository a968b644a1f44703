"""Empirical Bayes during training: the prior's precisions follow the evidence.

Every parameter array has a precision of its own. After a tenth of the training, and then after
every twentieth of it (from epoch 50 every 25 of 500), 50 Adam steps on their logarithms go up the
log evidence. The published script approximates its curvature by Kronecker factors; here it is the
exact Gram matrix of a block of rows, another block in each step, which bounds the evidence of all
rows from below. What is kept in the end are the weights where the bound was highest.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.rotated_mnist.plan import FULL_EPOCHS, HYPERPARAMETERS
from benchmarks.machinery.seeds import generator
from fisher8_jax import Gaussian
from fisher8_jax.posterior import batch_evidence

FIRST, EVERY = 50, 25  # epochs of the full length
JUDGED_BLOCKS = 8
_CLIMB = HYPERPARAMETERS["natural_evidence"]


class Evidences(NamedTuple):
    """What empirical Bayes keeps along a training."""

    log_precision: np.ndarray  # (arrays,)
    params: Any  # those with the highest evidence so far
    per_row: np.ndarray  # (updates,), the bound in nats a row; nan where not reached
    precisions: np.ndarray  # (updates, arrays), after each update

    @property
    def best(self) -> int | None:
        """The number of the update that `params` are from; None before the first."""
        return int(np.nanargmax(self.per_row)) if np.isfinite(self.per_row).any() else None

    def as_result(self) -> dict[str, np.ndarray]:
        """What is stored of it."""
        return {"evidence_per_row": self.per_row, "precisions": self.precisions}


def update_epochs(epochs: int) -> list[int]:
    """The epochs after which the precisions move, those of 500 shortened alike."""
    full = np.arange(FIRST, FULL_EPOCHS + 1, EVERY)
    return sorted({max(1, round(epoch * epochs / FULL_EPOCHS)) for epoch in full.tolist()})


def start_evidences(params: Any, epochs: int) -> Evidences:
    """Precisions of 1, nothing known yet."""
    leaves, updates = len(jax.tree.leaves(params)), len(update_epochs(epochs))
    return Evidences(
        np.zeros(leaves, np.float32),
        params,
        np.full(updates, np.nan),
        np.full((updates, leaves), np.nan),
    )


def update_evidences(
    kept: Evidences,
    network: Any,
    params: Any,
    data: tuple[np.ndarray, np.ndarray],
    seed: int,
    number: int,
) -> Evidences:
    """The update of this number: new precisions, and whether these weights are the best so far.

    Args:
        kept: of the update before.
        network: from parameters and inputs to two natural parameters.
        params: at present.
        data: inputs and targets of all training rows.
        seed: of the training.
        number: counts the updates from 0.
    """
    rows = len(data[1])
    rng = generator("rotated_mnist", seed, "evidence", number)
    size, steps = min(int(_CLIMB["block"]), rows), int(_CLIMB["adam_steps"])
    drawn = np.stack([rng.choice(rows, size, replace=False) for _ in range(steps)])
    judged = np.stack([rng.choice(rows, size, replace=False) for _ in range(JUDGED_BLOCKS)])
    # In float32 rounding of the Gram matrix is larger than the identity that is added to it.
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, data))
        log_precision, value = jax.tree.map(
            np.asarray, _climb(network, *wide, kept.log_precision.astype(float), drawn, judged)
        )
    per_row, precisions = kept.per_row.copy(), kept.precisions.copy()
    per_row[number], precisions[number] = value / rows, np.exp(log_precision)
    moved = kept._replace(
        log_precision=log_precision.astype(np.float32), per_row=per_row, precisions=precisions
    )
    return moved._replace(params=params) if moved.best == number else moved


@functools.partial(jax.jit, static_argnums=0)
def _climb(
    network: Any, params: Any, data: tuple[Array, Array], start: Array, drawn: Array, judged: Array
) -> tuple[Array, Array]:
    """Adam's steps, one block for each, and the bound of the judged blocks at the end."""
    inputs, targets = data
    rows = len(targets)

    def predict_one(params: Any, x: Array) -> Gaussian:
        return Gaussian.from_natural(*network.forward(params, None, x)[0])

    def found(log_precision: Array, places: Array) -> Any:
        block = inputs[places], targets[places]
        return batch_evidence(predict_one, params, *block, log_precision, rows=rows)

    optimizer = optax.adam(_CLIMB["adam_rate"])

    def step(carry: Any, places: Array) -> tuple[Any, None]:
        log_precision, state = carry
        uphill = found(log_precision, places).gradient
        updates, state = optimizer.update(-uphill / rows, state)
        return (optax.apply_updates(log_precision, updates), state), None

    (end, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), drawn)
    values = jax.lax.map(lambda places: found(end, places).log_evidence, judged)
    return end, jnp.mean(values)
