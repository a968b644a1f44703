"""The precisions of the prior by the evidence: cheap rounds on blocks, then exact ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.posterior._arithmetic import to_host
from fisher8_jax.posterior._build import Data, build_blocks, rowwise
from fisher8_jax.posterior._dual import Dual
from fisher8_jax.posterior._evidence import Evidence, evidence_of, update_precision
from fisher8_jax.posterior._primal import Primal
from fisher8_jax.posterior._prior import Groups

# Systems up to this size are tuned exactly from the first round on.
_SMALL = 800
_ROUNDS = 30
_EXACT_ROUNDS = 2
_TOLERANCE = 0.02

# For larger ones: up to so many blocks of so many unknowns.
_BLOCKS = 8
_BLOCK_SIZE = 400


class Settled(NamedTuple):
    """The precisions that were settled on, the evidence there, and the factor."""

    log_precision: Array
    evidence: Evidence
    factor: Array


def settle(
    system: Dual | Primal,
    log_precision: Array,
    nll: float,
    squares: Array,
    groups: Groups,
    data: Data | None,
) -> Settled:
    """Tunes the precisions if there is `data` to do it with, and factorises."""
    if data is not None:
        rounds = _ROUNDS
        if system.size > _SMALL:
            blocks, scale = _blocks(data, groups)
            log_precision = _tune(blocks, log_precision, squares, _ROUNDS, scale)
            rounds = _EXACT_ROUNDS
        log_precision = _tune(system, log_precision, squares, rounds, 1.0)
    factor = to_host(_factorize(system, log_precision))
    if not np.all(np.isfinite(factor)):
        raise ValueError(_why_not(system))
    evidence = _evidence(system, factor, log_precision, nll, squares)
    return Settled(to_host(log_precision), to_host(evidence), factor)


def _tune(
    system: Dual | Primal, log_precision: Array, squares: Array, rounds: int, scale: float
) -> Array:
    for _ in range(rounds):
        updated = to_host(_round(system, log_precision, squares, scale))
        if not np.all(np.isfinite(updated)):
            raise ValueError(_why_not(system))
        is_settled = np.max(np.abs(updated - log_precision)) < _TOLERANCE
        log_precision = updated
        if is_settled:
            break
    return log_precision


def update_by_blocks(
    data: Data, groups: Groups, log_precision: Array, squares: Array, max_step: float
) -> Array:
    """One step of the precisions, of at most `max_step`, by blocks of the rows."""
    blocks, scale = _blocks(data, groups, size=_SMALL)
    return _round(blocks, log_precision, squares, scale, max_step)


@jax.jit
def _round(
    system: Any, log_precision: Array, squares: Array, scale: float, max_step: float = 2.0
) -> Array:
    def effective(part: Any) -> Array:
        return part.effective(part.factorize(log_precision), log_precision)

    is_stacked = isinstance(system, Dual) and system.grams.ndim == 4
    found = jnp.sum(jax.lax.map(effective, system), 0) if is_stacked else effective(system)
    zeros = jnp.zeros_like(log_precision)
    evidence = Evidence(zeros[0], zeros, scale * found, squares)
    return update_precision(log_precision, evidence, max_step=max_step)


def _blocks(data: Data, groups: Groups, size: int = _BLOCK_SIZE) -> tuple[Dual, float]:
    """Blocks of random rows, and how many times they stand for all rows."""
    network, inputs, targets = data
    outputs = network.outputs(inputs)
    size = max(1, min(size // outputs, len(targets)))
    number = min(_BLOCKS, len(targets) // size)
    places = np.random.default_rng(0).permutation(len(targets))[: size * number]
    some = jax.tree.map(lambda x: np.asarray(x)[places], (inputs, targets))
    seen = rowwise(network, some[0], some[1], size)
    return build_blocks(seen, groups, size), len(targets) / len(places)


@jax.jit
def _factorize(system: Any, log_precision: Array) -> Array:
    return system.factorize(log_precision)


@jax.jit
def _evidence(
    system: Any, factor: Array, log_precision: Array, nll: Array, squares: Array
) -> Evidence:
    return evidence_of(system, factor, log_precision, nll, squares)


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
