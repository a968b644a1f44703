"""Validation: the NLL of held-out rows, the best parameters, and when to stop."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Family
from fisher8_jax.optimizers import AverageState
from fisher8_jax.training._data import Data, Params, Variables
from fisher8_jax.training._method import TrainingState, cast_like
from fisher8_jax.training._networks import Network, apply_network


class Trained(NamedTuple):
    """What steps change; every leaf has the runs as first axis."""

    state: TrainingState
    average: AverageState | None

    @property
    def params(self) -> Params:
        """The parameters that are validated and kept: the average if there is one."""
        if self.average is None:
            return self.state.params
        return jax.tree.map(cast_like, self.average.average, self.state.params)


class Validated(NamedTuple):
    """What validation has found; every leaf has the runs as first axis."""

    best: tuple[Params, Variables]
    """Parameters and variables with the lowest validation NLL."""
    nll: Array
    """That NLL; infinite before the first one."""
    best_step: Array
    stopped: Array
    """True for a run without improvement for too long; nothing it does afterwards counts."""


@jax.jit
def start_validation(trained: Trained) -> Validated:
    """Before the first validation."""
    runs = len(trained.state.step)
    # A copy, because the first step gives the arrays of the state up.
    best = jax.tree.map(jnp.copy, (trained.state.params, trained.state.variables))
    infinite = jnp.full((runs,), jnp.inf, jnp.float32)
    return Validated(best, infinite, jnp.zeros(runs, jnp.int32), jnp.zeros(runs, bool))


# The factors of the variance that `Plan.free_variance` tries, as logarithms.
LOG_FACTORS = tuple((0.4 * np.arange(-12, 19)).tolist())


def validation_nll(
    network: Network,
    params: Params,
    variables: Variables,
    blocks: list[Data],
    log_factors: tuple[float, ...] = (0.0,),
    *,
    shared: bool,
) -> np.ndarray:
    """The mean NLL of each run's validation rows, in float64; nan if it has no targets.

    Args:
        network: see `Method.update`.
        params: of the runs.
        variables: of the runs.
        blocks: leaves of shape (runs, rows, ...), the same for all blocks.
        log_factors: logarithms of what the variances are multiplied by.
        shared: True for leaves of shape (rows, ...), which all runs share.

    Returns:
        One value for each run and factor.
    """
    sums = [_score(network, shared, log_factors, params, variables, block) for block in blocks]
    total, weight = (
        np.sum(np.asarray(part, np.float64), axis=0) for part in zip(*sums, strict=True)
    )
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1), np.nan)


def best_factor(scores: np.ndarray) -> int:
    """The place of the factor with the lowest mean NLL of all runs that have finite ones."""
    usable = np.where(np.isfinite(scores), scores, np.inf)
    known = usable[np.isfinite(usable).any(axis=1)]
    return int(np.argmin(known.mean(axis=0))) if len(known) else 0


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
    is_known = np.isfinite(np.asarray(validated.nll))
    last = (trained.params, trained.state.variables)
    if is_known.all() or not is_known.any():
        return validated.best if is_known.all() else last
    return jax.tree.map(
        lambda best, now: jnp.where(append_axes(is_known, best.ndim), best, now),
        validated.best,
        last,
    )


# None of these programs knows the optimizer: methods share them.
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _score(
    network: Network,
    shared: bool,
    log_factors: tuple[float, ...],
    params: Params,
    variables: Variables,
    block: Data,
) -> tuple[Array, Array]:
    in_axes = (0, 0, None if shared else 0)
    of_run = functools.partial(_score_run, network, log_factors)
    return jax.vmap(of_run, in_axes)(params, variables, block)


def _score_run(
    network: Network,
    log_factors: tuple[float, ...],
    params: Params,
    variables: Variables,
    batch: Data,
) -> tuple[Array, Array]:
    """The summed NLLs of a batch and the sum of its weights, missing targets left out.

    Sums over several batches are added before they are divided. No target at all has a weight of 0,
    so its mean is nan and never the best.
    """
    dist, _ = apply_network(network, params, variables, batch.inputs)
    if dist.variance_field is None:
        total, weight = _sum_nll(dist, batch)
        only = jnp.asarray(log_factors) == 0.0  # no other factor is possible
        return jnp.where(only, total, jnp.inf), weight[None]
    name, power = dist.variance_field

    def rescaled(log_factor: Array) -> tuple[Array, Array]:
        field = getattr(dist, name)
        field = field + (power * log_factor).astype(field.dtype)
        return _sum_nll(dataclasses.replace(dist, **{name: field}), batch)

    totals, weights = jax.vmap(rescaled)(jnp.asarray(log_factors, jnp.float32))
    return totals, weights[:1]


def _sum_nll(dist: Family, batch: Data) -> tuple[Array, Array]:
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
        is_better = value < validated.nll
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), now, validated.best)
        best_step = jnp.where(is_better, step, validated.best_step)
        waited = (step - best_step).astype(jnp.float32)
        lowest = jnp.where(is_better, value, validated.nll)
        return Validated(best, lowest, best_step, validated.stopped | (waited >= patience))

    return jax.vmap(of_run)(now, steps, validated, nll)
