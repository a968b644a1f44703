"""The precisions of the prior by the evidence.

Rounds of MacKay's fixed point are cheap on small blocks of rows. Blocks alone know too much: each
counts what it shares with the others. So the effective numbers of parameters are multiplied by
those of the whole system over those of the blocks, found at the precisions where the rounds ended,
and the rounds go on.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from chex import Array  # of NumPy or of JAX

from fisher8_jax.posterior._arithmetic import to_host
from fisher8_jax.posterior._build import Data, build_blocks, rowwise
from fisher8_jax.posterior._dual import Dual
from fisher8_jax.posterior._evidence import Evidence, evidence_of, update_precision
from fisher8_jax.posterior._primal import Primal
from fisher8_jax.posterior._prior import Groups

# Systems up to this size are tuned exactly from the first round on.
_SMALL = 512
_ROUNDS = 30
_TOLERANCE = 0.05

# For larger ones: up to so many blocks of so many unknowns, compared with all rows so many times.
_BLOCKS = 4
_BLOCK_SIZE = 128
_COMPARISONS = 2

# In training: one part of the rows with up to so many unknowns.
_TRAINING_SIZE = 800


class Settled(NamedTuple):
    """The precisions that were settled on, the factor, and the evidence there."""

    log_precision: Array
    factor: Array
    evidence: Evidence


def settle(
    system: Dual | Primal,
    log_precision: Array,
    nll: float,
    squares: Array,
    groups: Groups,
    data: Data | None,
    raised: Array | None = None,
) -> Settled:
    """Tunes the precisions if there is `data` to do it with, and factorises.

    Args:
        system: of all rows.
        log_precision: the start.
        nll: of all rows, summed.
        squares: see `Evidence`.
        groups: of the prior.
        data: rows to tune with.
        raised: the number of parameters of each group, to end at the geometric mean of the tuned
            precisions and of those that maximise the prior's density of the parameters.
    """
    if data is not None:
        log_precision, effective = _tune(system, log_precision, nll, squares, groups, data)
        if raised is not None:
            log_precision = log_precision + 0.5 * np.log(raised / np.clip(effective, 1e-3, raised))
    factor, evidence = to_host(_solve(system, log_precision, nll, squares))
    _check(system, factor)
    return Settled(to_host(log_precision), factor, evidence)


def _tune(
    system: Dual | Primal,
    log_precision: Array,
    nll: float,
    squares: Array,
    groups: Groups,
    data: Data,
) -> tuple[Array, Array]:
    """The precisions at the fixed point, and the effective numbers of parameters there."""
    ones = np.ones_like(log_precision)
    if system.size <= _SMALL:
        return _rounds(system, log_precision, squares, ones)
    blocks, times = _blocks(system, data, groups)
    scale = times * ones
    for last in range(_COMPARISONS):
        log_precision, found = _rounds(blocks, log_precision, squares, scale)
        if last < _COMPARISONS - 1:
            factor, evidence = to_host(_solve(system, log_precision, nll, squares))
            _check(system, factor)
            scale = scale * evidence.effective / np.maximum(found, np.finfo(found.dtype).tiny)
    return log_precision, found


def _rounds(
    parts: Dual | Primal, log_precision: Array, squares: Array, scale: Array
) -> tuple[Array, Array]:
    """Steps until none is large; the last precisions and the effective numbers before."""
    for _ in range(_ROUNDS):
        old = log_precision
        log_precision, found = _update(parts, old, squares, scale)
        if np.max(np.abs(log_precision - old)) < _TOLERANCE:
            break
    return log_precision, found


def update_by_part(
    data: Data, groups: Groups, log_precision: Array, squares: Array, max_step: float
) -> Array:
    """One step of the precisions, of at most `max_step`, by a part of the rows.

    The effective number of parameters is concave in the information of the rows. So, on average
    over random parts, copies of the part instead of the other rows have too small a number, and
    the part's own number, once for each copy, is too large. Their geometric mean is taken.
    """
    part, copies = _blocks_of_rows(data, groups, _TRAINING_SIZE, 1)
    copied = dataclasses.replace(part, grams=copies * part.grams)
    largest, smallest = (_effective(system, log_precision) for system in (part, copied))
    return _stepped(log_precision, np.sqrt(copies * largest * smallest), squares, max_step)


def _update(
    parts: Dual | Primal, log_precision: Array, squares: Array, scale: Array
) -> tuple[Array, Array]:
    """One step of the precisions, and the effective numbers of parameters before it."""
    found = scale * _effective(parts, log_precision)
    return _stepped(log_precision, found, squares, 2.0), found


def _effective(parts: Dual | Primal, log_precision: Array) -> Array:
    """On the host: compiling takes longer than all rounds on small matrices."""
    try:
        return parts.effective_on_host(log_precision)
    except np.linalg.LinAlgError as error:
        raise ValueError(_why_not(parts)) from error


def _stepped(log_precision: Array, effective: Array, squares: Array, max_step: float) -> Array:
    evidence = Evidence(effective[0], effective, effective, squares)
    return to_host(_step(log_precision, evidence, max_step=max_step))


_step = jax.jit(update_precision, static_argnames="max_step")


def _blocks(system: Dual | Primal, data: Data, groups: Groups) -> tuple[Dual, float]:
    """Blocks of random rows, and how many times they stand for all rows."""
    if not isinstance(system, Dual):
        return _blocks_of_rows(data, groups, _BLOCK_SIZE, _BLOCKS)
    rows, outputs = system.root.shape[:2]
    places = _places(rows, outputs, _BLOCK_SIZE, _BLOCKS)
    return system.blocks(places), rows / places.size


def _blocks_of_rows(data: Data, groups: Groups, size: int, number: int) -> tuple[Dual, float]:
    network, inputs, targets = data
    places = _places(len(targets), network.outputs(inputs), size, number)
    some = jax.tree.map(lambda x: np.asarray(x)[places.reshape(-1)], (inputs, targets))
    seen = rowwise(network, some[0], some[1], places.shape[1])
    return build_blocks(seen, groups, places.shape[1]), len(targets) / places.size


def _places(rows: int, outputs: int, size: int, number: int) -> np.ndarray:
    """Random rows of each block."""
    size = max(1, min(size // outputs, rows))
    number = min(number, rows // size)
    return np.random.default_rng(0).permutation(rows)[: size * number].reshape(number, size)


@jax.jit
def _solve(system: Any, log_precision: Array, nll: Array, squares: Array) -> tuple[Array, Evidence]:
    factor = system.factorize(log_precision)
    return factor, evidence_of(system, factor, log_precision, nll, squares)


def _check(system: Dual | Primal, found: Array) -> None:
    if not np.all(np.isfinite(found)):
        raise ValueError(_why_not(system))


def _why_not(system: Dual | Primal) -> str:
    """Why a factorisation has no finite result."""
    matrix = system.grams if isinstance(system, Dual) else system.curvature
    if not np.all(np.isfinite(matrix)):
        return (
            "The outputs of the network or their derivatives are not finite on the training rows, "
            "so it has no posterior. Check `inputs` for values that are not finite."
        )
    wider = "Use `dtype='float64'`, or a" if matrix.dtype.name == "float32" else "Use a"
    return (
        f"The matrix of the posterior is not positive definite in {matrix.dtype.name}: its largest "
        f"eigenvalue times the rounding exceeds 1. {wider} larger `precision` of the prior."
    )
