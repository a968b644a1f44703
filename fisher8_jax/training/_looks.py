"""Looks at held-out data: the best parameters so far, and whether to stop."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.optimizers import BestParams
from fisher8_jax.training._loop import TrainState
from fisher8_jax.training._step import Batch, Task, score


class Looks(NamedTuple):
    """What the looks have found; every leaf has the lanes as first axis."""

    best: BestParams
    """Parameters and variables with the lowest held-out NLL."""
    best_step: Array
    stopped: Array
    """True for a lane that has waited too long; nothing it does afterwards counts."""


@jax.jit
def start_looks(state: TrainState) -> Looks:
    """No look was taken yet."""
    lanes = len(jax.tree.leaves(state.params)[0])
    # A copy, because the first step gives the arrays of the state up.
    best = jax.tree.map(jnp.copy, (state.params, state.variables))
    scores = jnp.full((lanes,), jnp.inf, jnp.float32)
    return Looks(BestParams(best, scores), jnp.zeros(lanes, jnp.int32), jnp.zeros(lanes, bool))


def held_out_nll(task: Task, state: TrainState, blocks: list[Batch]) -> np.ndarray:
    """The mean NLL of each lane's held-out rows, in float64; nan if it has no targets.

    Args:
        task: network, loss and optimiser.
        state: after any number of steps.
        blocks: every leaf of shape (lanes, rows, ...), all blocks of the same shape.
    """
    judged = task.judged(state.params, state.optimizer)
    sums = [_score(task.apply, judged, state.variables, block) for block in blocks]
    total, weight = (
        np.sum(np.asarray(part, np.float64), axis=0) for part in zip(*sums, strict=True)
    )
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1), np.nan)


def take_look(
    task: Task, state: TrainState, looks: Looks, nll: np.ndarray, patience_steps: float
) -> Looks:
    """Keeps what is better, and stops the lanes that have waited too long.

    Args:
        task: network, loss and optimiser.
        state: the lanes now.
        looks: what was found before.
        nll: each lane's held-out NLL now.
        patience_steps: how many steps a lane may go without a better look.
    """
    patience = jnp.asarray(min(patience_steps, 2.0**30), jnp.float32)
    judged = (task.judged(state.params, state.optimizer), state.variables)
    return _take_look(judged, state.step, looks, jnp.asarray(nll, jnp.float32), patience)


def final_params(task: Task, state: TrainState, looks: Looks) -> tuple:
    """The best parameters and variables; the last ones of a lane that no look could judge."""
    if np.isfinite(looks.best.score).all():
        return looks.best.params
    return _final_params(task, state, looks)


# Neither program knows the optimiser: tasks that share a network share them.
@functools.partial(jax.jit, static_argnums=0)
def _score(apply, params, variables, block):
    return jax.vmap(functools.partial(score, apply))(params, variables, block)


@jax.jit
def _take_look(judged, step, looks, nll, patience):
    def of_lane(judged, look, nll):
        # A stopped lane keeps what it has, whatever comes; so does one whose NLL is not finite.
        value = jnp.where(look.stopped | ~jnp.isfinite(nll), jnp.inf, nll)
        best = look.best.keep(judged, value)
        is_better = value < look.best.score
        best_step = jnp.where(is_better, step, look.best_step)
        waited = (step - best_step).astype(jnp.float32)
        return Looks(best, best_step, look.stopped | (waited >= patience))

    return jax.vmap(of_lane)(judged, looks, nll)


@functools.partial(jax.jit, static_argnums=0)
def _final_params(task, state, looks):
    def of_lane(params, variables, optimizer, look):
        is_known = jnp.isfinite(look.best.score)
        last = (task.judged(params, optimizer), variables)
        return jax.tree.map(lambda a, b: jnp.where(is_known, a, b), look.best.params, last)

    return jax.vmap(of_lane)(state.params, state.variables, state.optimizer, looks)
