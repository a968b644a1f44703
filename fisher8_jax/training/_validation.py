"""Validation: the NLL of held-out rows, the best parameters so far, and whether to stop."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.optimizers import BestParams
from fisher8_jax.training._data import Data, Params, Variables
from fisher8_jax.training._loop import Trained
from fisher8_jax.training._networks import Network, apply_network


class Validated(NamedTuple):
    """What validation has found; every leaf has the runs as first axis."""

    best: BestParams
    """Parameters and variables with the lowest validation NLL."""
    best_step: Array
    stopped: Array
    """True for a run without improvement for too long; nothing it does afterwards counts."""


@jax.jit
def start_validation(trained: Trained) -> Validated:
    """Before the first validation."""
    runs = len(trained.state.step)
    # A copy, because the first step gives the arrays of the state up.
    best = jax.tree.map(jnp.copy, (trained.state.params, trained.state.variables))
    scores = jnp.full((runs,), jnp.inf, jnp.float32)
    return Validated(BestParams(best, scores), jnp.zeros(runs, jnp.int32), jnp.zeros(runs, bool))


def validation_nll(
    network: Network, trained: Trained, blocks: list[Data], *, shared: bool
) -> np.ndarray:
    """The mean NLL of each run's validation rows, in float64; nan if it has no targets.

    Args:
        network: see `Method.update`.
        trained: after any number of steps.
        blocks: leaves of shape (runs, rows, ...), the same for all blocks.
        shared: True for leaves of shape (rows, ...), which all runs share.
    """
    params, variables = trained.params, trained.state.variables
    sums = [_score(network, shared, params, variables, block) for block in blocks]
    total, weight = (
        np.sum(np.asarray(part, np.float64), axis=0) for part in zip(*sums, strict=True)
    )
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1), np.nan)


def validate(
    trained: Trained, validated: Validated, nll: np.ndarray, patience_steps: float
) -> Validated:
    """Keeps what is better, and stops the runs that have not improved for too long.

    Args:
        trained: the runs now.
        validated: what was found before.
        nll: each run's validation NLL now.
        patience_steps: the steps that a run may make without improvement.
    """
    patience = np.asarray(min(patience_steps, 2.0**30), np.float32)
    now = (trained.params, trained.state.variables)
    return _validate(now, trained.state.step, validated, np.asarray(nll, np.float32), patience)


def final_params(trained: Trained, validated: Validated) -> tuple[Params, Variables]:
    """The best parameters and variables; the last ones of a run without a validation NLL."""
    if np.isfinite(np.asarray(validated.best.score)).all():
        return validated.best.params
    return _final_params((trained.params, trained.state.variables), validated)


# None of these programs knows the optimizer: methods share them.
@functools.partial(jax.jit, static_argnums=(0, 1))
def _score(
    network: Network, shared: bool, params: Params, variables: Variables, block: Data
) -> tuple[Array, Array]:
    in_axes = (0, 0, None if shared else 0)
    return jax.vmap(functools.partial(_score_run, network), in_axes)(params, variables, block)


def _score_run(
    network: Network, params: Params, variables: Variables, batch: Data
) -> tuple[Array, Array]:
    """The summed NLL of a batch and the sum of its weights, missing targets left out.

    Sums over several batches are added before they are divided. No target at all has a weight of 0,
    so its mean is nan and never the best.
    """
    dist, _ = apply_network(network, params, variables, batch.inputs)
    values = dist.nll(batch.targets)
    weights = jnp.ones_like(values) if batch.weights is None else batch.weights
    weights = jnp.broadcast_to(weights, values.shape).astype(values.dtype)
    if batch.where is not None:
        where = jnp.broadcast_to(batch.where, values.shape)
        values, weights = jnp.where(where, values, 0), jnp.where(where, weights, 0)
    # A weight of 0 takes a target out even if its NLL is infinite.
    return jnp.sum(jnp.where(weights == 0, 0, values * weights)), jnp.sum(weights)


@jax.jit
def _validate(
    now: tuple, steps: Array, validated: Validated, nll: Array, patience: Array
) -> Validated:
    def of_run(now: tuple, step: Array, validated: Validated, nll: Array) -> Validated:
        # A stopped run keeps what it has, whatever comes; so does one whose NLL is not finite.
        value = jnp.where(validated.stopped | ~jnp.isfinite(nll), jnp.inf, nll)
        best = validated.best.keep(now, value)
        is_better = value < validated.best.score
        best_step = jnp.where(is_better, step, validated.best_step)
        waited = (step - best_step).astype(jnp.float32)
        return Validated(best, best_step, validated.stopped | (waited >= patience))

    return jax.vmap(of_run)(now, steps, validated, nll)


@jax.jit
def _final_params(last: tuple, validated: Validated) -> tuple[Params, Variables]:
    def of_run(last: tuple, validated: Validated) -> tuple:
        is_known = jnp.isfinite(validated.best.score)
        return jax.tree.map(lambda a, b: jnp.where(is_known, a, b), validated.best.params, last)

    return jax.vmap(of_run)(last, validated)
