"""Trains every likelihood by every method, and keeps what is best on held-out rows."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import numpy as np

from fisher8_jax._internal.trees import append_axes
from fisher8_jax.artifacts import TargetScaler, TrainingCheckpoints
from fisher8_jax.estimator._checkpoints import describe_fit, open_checkpoints
from fisher8_jax.estimator._estimator_checks import as_targets
from fisher8_jax.estimator._families import fit_units
from fisher8_jax.estimator._methods import Recipe
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.families import Family
from fisher8_jax.training import Data, Fitted, Method, Plan, fit

# How much worse than the best a method may be on held-out rows so that its members join.
_MOST_ERRORS, _MOST_NATS = 3.0, 0.2

# How much worse a member may be than that of another method with the same held-out rows.
_FAILED = 0.5


class Rows(NamedTuple):
    """Checked rows of a table."""

    inputs: np.ndarray
    """Encoded, float32."""
    targets: np.ndarray
    """float64, in the units of the data."""
    where: np.ndarray
    """False for missing targets."""
    weights: np.ndarray
    """One per row, positive, of mean 1."""


class Setup(NamedTuple):
    """The checked hyper-parameters."""

    members: int
    hidden: tuple[int, ...]
    recipes: tuple[Recipe, ...]
    plan: Plan
    show_progress: bool
    checkpoint_dir: Path | None = None
    """Where unfinished candidates are kept; None for nowhere."""


class Candidate(NamedTuple):
    """An ensemble that was trained with one likelihood, by one method or several."""

    family: str
    recipes: tuple[Recipe, ...]
    network: DenseNetwork
    scaler: TargetScaler
    params: chex.ArrayTree
    """The best of each member, members first."""
    steps: int
    held_out_nll: np.ndarray
    """Of each member, in the units of the data."""
    held_out: np.ndarray
    """The numbers of the rows that each run held out, the same for all methods."""

    @property
    def name(self) -> str:
        """Likelihood and methods in words."""
        return f"{self.family}, {' + '.join(map(str, self.recipes))}"

    @property
    def methods(self) -> tuple[Method, ...]:
        """Each only once."""
        return tuple(dict.fromkeys(recipe.method for recipe in self.recipes))

    @property
    def score(self) -> float:
        """The mean held-out NLL; infinite if there is none."""
        mean = float(np.mean(self.held_out_nll))
        return mean if np.isfinite(mean) else float("inf")


def train_candidates(
    rows: Rows,
    is_bin: np.ndarray,
    likelihoods: dict[str, type[Family]],
    setup: Setup,
    seed: int,
) -> list[Candidate]:
    """All recipes for the best likelihood, on the same folds with the same batches.

    Of several likelihoods the best is found by the first recipe.

    Args:
        rows: of the table.
        is_bin: which encoded columns are bins of a number.
        likelihoods: by name.
        setup: the hyper-parameters.
        seed: decides everything random.
    """
    config = _fit_config(rows, setup, seed) if setup.checkpoint_dir else None
    total = len(likelihoods) + len(setup.recipes) - 1
    candidates: list[Candidate] = []

    def train(family: str, index: int) -> None:
        likelihood, (method, has_bins) = likelihoods[family], setup.recipes[index]
        is_used = ~is_bin | has_bins
        scaler = fit_units(likelihood.units, rows.targets, rows.where, rows.weights)
        network = DenseNetwork(setup.hidden, link_of(likelihood), rows.targets.shape[1:])
        params = _init_members(network, likelihood, rows, is_used, setup.members, seed)
        used = _without_bins(rows, is_bin & ~is_used)
        title = f"{len(candidates) + 1} of {total}: {family}, {setup.recipes[index]}"
        with open_checkpoints(setup.checkpoint_dir, config, family, index, method) as states:
            trained = _train(network, method, params, used, scaler, setup, seed, states, title)
        candidates.append(Candidate(family, (setup.recipes[index],), network, scaler, *trained))

    best, first = next(iter(likelihoods)), 0
    if len(likelihoods) > 1:
        for family in likelihoods:
            train(family, 0)
        best, first = min(candidates, key=lambda one: one.score).family, 1
    for index in range(first, len(setup.recipes)):
        train(best, index)
    return candidates


def train_on(
    rows: Rows,
    is_bin: np.ndarray,
    network: DenseNetwork,
    scaler: TargetScaler,
    params: chex.ArrayTree,
    method: Method,
    setup: Setup,
    seed: int,
    held_out: np.ndarray,
) -> tuple[chex.ArrayTree, int, np.ndarray]:
    """Goes on from `params`; the best ones, the steps, the held-out NLLs.

    Members with bins and members without train one after the other.
    """
    sees_bins = np.any(params[0]["kernel"][:, is_bin] != 0, axis=(1, 2))
    groups = [np.flatnonzero(sees_bins == has_bins) for has_bins in np.unique(sees_bins)]
    found = []
    for own in groups:
        start = jax.tree.map(lambda leaf, own=own: leaf[own], params)
        used = _without_bins(rows, is_bin & ~sees_bins[own[0]])
        parts = setup._replace(members=len(own))
        args = network, method, start, used, scaler, parts, seed, None, str(method), held_out[own]
        found.append(_train(*args)[:3])
    order = np.argsort(np.concatenate(groups))
    trees, steps, scores = zip(*found, strict=True)
    trained = jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *trees)
    return trained, max(steps), np.concatenate(scores)[order]


def best_candidate(candidates: list[Candidate]) -> Candidate:
    """The lowest mean held-out NLL, joined by others that are about as good.

    Members of other methods of the same likelihood join if their held-out NLL, fold by fold, is not
    worse by more than three standard errors: they are trained already, and members that came
    another way make the better mixture. A method that failed in one fold has a large standard
    error, so it may not be worse by more than a fifth of a nat either.

    One failed member would spoil a mixture of five, and its method may still be the best: another
    method's member with the same held-out rows takes its place first.
    """
    complete = [_without_failures(one, candidates) for one in candidates]
    chosen = min(range(len(complete)), key=lambda index: complete[index].score)
    best = complete[chosen]
    kept = [
        best if index == chosen else one
        for index, one in enumerate(candidates)
        if index == chosen or _is_about_as_good(one, best)
    ]
    return best._replace(
        recipes=tuple(recipe for one in kept for recipe in one.recipes),
        params=jax.tree.map(lambda *leaves: np.concatenate(leaves), *(one.params for one in kept)),
        held_out_nll=np.concatenate([one.held_out_nll for one in kept]),
    )


def _without_failures(one: Candidate, candidates: list[Candidate]) -> Candidate:
    """A candidate whose failed members, if they are few, are those of other methods."""
    others = [other for other in candidates if other.family == one.family]
    every = np.stack([other.held_out_nll for other in others])
    lowest = np.where(np.isnan(every), np.inf, every)
    chosen, folds = np.argmin(lowest, axis=0), np.arange(every.shape[1])
    best = every[chosen, folds]
    has_failed = ~(one.held_out_nll <= best + _FAILED) & np.isfinite(best)
    if has_failed.mean() >= 0.5:
        return one

    def replace_failed(own: np.ndarray, *leaves: np.ndarray) -> np.ndarray:
        found = np.stack(leaves)[chosen, folds]
        return np.where(append_axes(has_failed, own.ndim), found, own)

    return one._replace(
        params=jax.tree.map(replace_failed, one.params, *(other.params for other in others)),
        held_out_nll=np.where(has_failed, best, one.held_out_nll),
    )


def choose_reference(candidates: list[Candidate]) -> chex.ArrayTree:
    """The network whose posterior says what is unfamiliar: the first of the best without bins.

    To one with bins a row between two knots is as unfamiliar as one in a gap of the data.
    """
    smooth = [one for one in candidates if not one.recipes[0].has_bins]
    best = min(smooth or candidates, key=lambda candidate: candidate.score)
    return jax.tree.map(lambda leaf: leaf[0], best.params)


def _is_about_as_good(one: Candidate, best: Candidate) -> bool:
    if one.family != best.family or len(best.held_out_nll) < 2 or not np.isfinite(one.score):
        return False
    worse = one.held_out_nll - best.held_out_nll
    error = worse.std(ddof=1) / np.sqrt(len(worse))
    return bool(worse.mean() <= min(_MOST_ERRORS * error, _MOST_NATS))


def _train(
    network: DenseNetwork,
    method: Method,
    params: chex.ArrayTree,
    rows: Rows,
    scaler: TargetScaler,
    setup: Setup,
    seed: int,
    checkpoints: TrainingCheckpoints | None,
    title: str,
    held_out: np.ndarray | None = None,
) -> tuple[chex.ArrayTree, int, np.ndarray, np.ndarray]:
    """All members side by side; their best parameters, the steps, held-out NLLs in data units.

    Also the numbers of the rows that were held out.
    """
    fitted: Fitted = fit(
        network,
        params,
        _scaled_data(rows, scaler),
        setup.plan,
        method=method,
        runs=setup.members,
        seed=seed,
        held_out=held_out,
        checkpoints=checkpoints,
        diagnostics=False,
        show_progress=title if setup.show_progress else False,
    )
    params = jax.tree.map(np.asarray, fitted.params)
    params = network.with_variance_factor(params, fitted.variance_factor)
    nll = fitted.validation_nll + _mean_log_scale(scaler, rows, fitted.validation_rows)
    return params, fitted.steps, nll, fitted.validation_rows


def _without_bins(rows: Rows, is_unused: np.ndarray) -> Rows:
    """Columns of zeros, whose weights begin at 0 and stay there, so that programs are shared."""
    return rows._replace(inputs=np.where(is_unused, np.float32(0), rows.inputs))


def _fit_config(rows: Rows, setup: Setup, seed: int) -> dict[str, Any]:
    """All that decides the bits of a candidate besides its likelihood and its method."""
    return describe_fit(
        rows,
        members=setup.members,
        hidden=list(setup.hidden),
        seed=seed,
        **dataclasses.asdict(setup.plan),
    )


def _init_members(
    network: DenseNetwork,
    likelihood: type[Family],
    rows: Rows,
    is_used: np.ndarray,
    members: int,
    seed: int,
) -> chex.ArrayTree:
    """Members first; the weights of inputs that are not used are 0."""
    weights = np.where(rows.where, as_targets(rows.weights, rows.targets), 0)
    mean = np.sum(np.where(rows.where, rows.targets, 0) * weights, axis=0) / weights.sum(axis=0)
    start = likelihood.initial_fields(mean)
    trees = [
        network.init(np.random.default_rng((seed, 2, member)), int(is_used.sum()), start)
        for member in range(members)
    ]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    drawn = params[0]["kernel"]
    params[0]["kernel"] = np.zeros((members, len(is_used), drawn.shape[-1]), drawn.dtype)
    params[0]["kernel"][:, is_used] = drawn
    return params


def _scaled_data(rows: Rows, scaler: TargetScaler) -> Data:
    """Targets in the units of training, missing ones replaced by one that has a likelihood."""
    present = np.take_along_axis(rows.targets, np.argmax(rows.where, axis=0)[None], axis=0)[0]
    targets = np.where(rows.where, rows.targets, present)
    scaled = ((targets - scaler.shift) / scaler.scale).astype(np.float32)
    # A program without mask and weights is smaller and faster, and most tables need neither.
    where = None if rows.where.all() else rows.where
    if np.ptp(rows.weights) == 0:
        return Data(rows.inputs, scaled, where)
    weights = as_targets(rows.weights, targets)
    weights = np.broadcast_to(weights, targets.shape).astype(np.float32)
    return Data(rows.inputs, scaled, where, weights)


def _mean_log_scale(scaler: TargetScaler, rows: Rows, held_out: np.ndarray) -> np.ndarray:
    """What changes of units add to each run's mean held-out NLL."""
    log_scale = np.broadcast_to(np.log(scaler.scale), rows.targets.shape)
    weights = np.where(rows.where, as_targets(rows.weights, rows.targets), 0)
    axes = tuple(range(1, held_out.ndim + rows.targets.ndim - 1))
    total = np.sum(weights[held_out], axis=axes)
    return np.sum((weights * log_scale)[held_out], axis=axes) / np.where(total == 0, 1, total)
