"""A training from its first step to its last: chunks, validation, callback, checkpoints."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._internal.progress import Report, report_progress
from fisher8_jax._internal.trees import append_axes
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.families import Family
from fisher8_jax.optimizers import AverageState
from fisher8_jax.training._data import BatchLoader, Data, Metrics, Params, Variables
from fisher8_jax.training._method import Method, StepInfo, TrainingState, cast_like
from fisher8_jax.training._networks import Network, apply_network
from fisher8_jax.training._plan import Plan

LoggedMetrics: TypeAlias = tuple[tuple[str, Callable[[StepInfo], Array]], ...]


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


@jax.jit
def start(
    method: Method, params: Params, variables: Variables, num_steps: Array, horizon: Array | None
) -> Trained:
    """Before the first step; `method` and parameters have the runs as first axis."""

    def of_run(method: Method, params: Params, variables: Variables) -> Trained:
        average = None if horizon is None else AverageState.start(params)
        return Trained(method.init(params, num_steps, variables), average)

    return jax.vmap(of_run)(method, params, variables)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def train_steps(
    network: Network,
    metrics: LoggedMetrics,
    method: Method,
    trained: Trained,
    keys: Array,
    batches: Data,
    steps: Array,
    horizon: Array | None,
) -> tuple[Trained, Metrics]:
    """Makes the first `steps` of `batches`; `trained` is given up to the result.

    Args:
        network: see `Method.update`.
        metrics: what is logged at each step besides the loss.
        method: runs first.
        trained: runs first.
        keys: one per run.
        batches: leaves of shape (steps, runs, batch, ...).
        steps: how many; the others are padding.
        horizon: of the average of parameters; None for none.

    Returns:
        The new state, and the metrics of every step and run, nan for steps not made.
    """

    def of_run(method: Method, trained: Trained, key: Array, batch: Data) -> tuple[Trained, Any]:
        state, average = trained
        key = jax.random.fold_in(key, state.step)
        state, info = method.update(network, state, batch, key=key)
        if average is not None and horizon is not None:
            average = average.add(state.params, horizon)
        logged = {"loss": info.loss} | {name: metric(info) for name, metric in metrics}
        return Trained(state, average), logged

    def body(index: Array, carry: tuple[Trained, Metrics]) -> tuple[Trained, Metrics]:
        trained, written = carry
        batch = jax.tree.map(lambda leaf: leaf[index], batches)
        trained, logged = jax.vmap(of_run)(method, trained, keys, batch)
        return trained, jax.tree.map(lambda all_, now: all_.at[index].set(now), written, logged)

    shape = batches.targets.shape[:2]
    names = ("loss", *(name for name, _ in metrics))
    empty = {name: jnp.full(shape, jnp.nan) for name in names}
    return lax.fori_loop(0, steps, body, (trained, empty))


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
_LOG_FACTORS = tuple((0.4 * np.arange(-12, 19)).tolist())


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


Callback: TypeAlias = Callable[[int, dict[str, np.ndarray], Any], object]


class Progress(NamedTuple):
    """Everything that a resumed training needs; NumPy arrays but for the first two."""

    trained: Trained
    validated: Validated
    nll: np.ndarray
    """(validations, runs), nan for those not made."""
    metrics: dict[str, np.ndarray]
    """(steps, runs) each, nan for steps not made."""

    @property
    def step(self) -> int:
        """The number of steps made."""
        return int(np.asarray(self.trained.state.step)[0])

    @property
    def has_stopped(self) -> bool:
        """Whether every run has stopped."""
        return bool(np.asarray(self.validated.stopped).all())


class Training(NamedTuple):
    """What stays the same along a training."""

    network: Network
    method: Method
    """Runs first."""
    keys: jax.Array
    plan: Plan
    loader: BatchLoader
    metrics: LoggedMetrics
    callback: Callback | None

    def run(
        self,
        trained: Trained,
        *,
        checkpoints: TrainingCheckpoints | None,
        title: str,
        show_progress: bool,
    ) -> Progress:
        """All steps of the plan, or until the last run has stopped."""
        blocks = [jax.device_put(block) for block in self.loader.validation_blocks()]
        progress, stops, done = self._start(trained), self.plan.validation_steps, 0
        if checkpoints is not None:
            progress, done = checkpoints.restore(progress) or (progress, 0)
        with report_progress(title, self.plan.steps, show=show_progress) as report:
            for index in range(done, len(stops)):
                if not progress.has_stopped:
                    first = progress.step
                    progress = self._train_until(progress, stops[index], report)
                    if blocks:
                        progress = self._validate(progress, blocks, index)
                    progress = self._tell(progress, index, first, report)
                if checkpoints is not None:
                    checkpoints.save(index + 1, progress)
        return progress

    def _start(self, trained: Trained) -> Progress:
        plan, runs = self.plan, self.loader.runs
        names = ("loss", *(name for name, _ in self.metrics))
        metrics = {name: np.full((plan.steps, runs), np.nan, np.float32) for name in names}
        nll = np.full((len(plan.validation_steps), runs), np.nan)
        return Progress(trained, start_validation(trained), nll, metrics)

    def _train_until(self, progress: Progress, last: int, report: Report) -> Progress:
        # Copies, because a checkpoint may still be written from the old ones.
        metrics = {name: np.array(values) for name, values in progress.metrics.items()}
        trained, first, plan = progress.trained, progress.step, self.plan
        horizon = None if plan.average is None else np.asarray(plan.average, np.float32)
        while first < last:
            steps = min(self.loader.chunk, last - first)
            trained, logged = train_steps(
                self.network, self.metrics, self.method, trained, self.keys,
                self.loader.batches(first, steps), np.asarray(steps, np.int32), horizon,
            )  # fmt: skip
            for name, values in logged.items():
                metrics[name][first : first + steps] = np.asarray(values)[:steps]
            first += steps
            report(first, "")
        return progress._replace(trained=trained, metrics=metrics)

    def _validate(self, progress: Progress, blocks: list[Data], index: int) -> Progress:
        trained = progress.trained
        scores = self.score(trained.params, trained.state.variables, blocks)
        nll = scores[:, best_factor(scores)]
        deciding = nll
        if self.plan.free_variance and np.isfinite(nll).any():
            # One factor for all runs is right where all have come equally far.
            deciding = np.where(np.isfinite(nll), nll[np.isfinite(nll)].mean(), nll)
        patience = self.plan.patience_after(progress.step)
        validated = validate(progress.trained, progress.validated, deciding, patience)
        history = np.array(progress.nll)
        history[index] = nll
        return progress._replace(validated=validated, nll=history)

    @property
    def log_factors(self) -> tuple[float, ...]:
        """Of the variance, in a validation; 0 alone unless the plan leaves the variance free."""
        return _LOG_FACTORS if self.plan.free_variance else (0.0,)

    def score(self, params: Params, variables: Variables, blocks: list[Data]) -> np.ndarray:
        """The validation NLL of every run under every factor."""
        shared = self.loader.validation is not None
        return validation_nll(
            self.network, params, variables, blocks, self.log_factors, shared=shared
        )

    def _tell(self, progress: Progress, index: int, first: int, report: Report) -> Progress:
        """Reports to the terminal and to the callback, which may stop the training."""
        step, nll = progress.step, np.asarray(progress.nll)[index]
        loss = float(np.mean(progress.metrics["loss"][step - 1]))
        note = f"loss {loss:.3f}"
        report(step, note if np.isnan(nll).all() else f"{note}, validation NLL {np.mean(nll):.3f}")
        if self.callback is None:
            return progress
        logged = {name: np.array(values[first:step]) for name, values in progress.metrics.items()}
        if self.callback(step, logged, nll) is not True:
            return progress
        stopped = jnp.ones(self.loader.runs, bool)
        return progress._replace(validated=progress.validated._replace(stopped=stopped))


DIAGNOSTIC_METRICS: LoggedMetrics = (
    ("step_kl", lambda info: info.step_kl),
    ("smallest_log_variance", lambda info: jnp.min(2 * info.dist.log_std).astype(jnp.float32)),
    ("largest_log_variance", lambda info: jnp.max(2 * info.dist.log_std).astype(jnp.float32)),
)
"""What the doctor asks of every step besides the loss."""


def training_record(
    metrics: dict[str, np.ndarray],
    validation_nll: np.ndarray,
    data: Data,
    optimizer: chex.ArrayTree | None,
) -> TrainingRecord:
    """The record of one run from its metrics, one array over the steps for each name."""
    targets = np.asarray(data.targets, np.float64)
    present = np.ones(targets.shape, bool) if data.where is None else np.asarray(data.where)
    if present.shape != targets.shape:  # a mask of rows, targets with event axes
        present = np.broadcast_to(append_axes(present, targets.ndim), targets.shape)
    values = targets[present & np.isfinite(targets)]
    step_kl = metrics["step_kl"]
    return TrainingRecord(
        losses=metrics["loss"],
        validation_losses=validation_nll if len(validation_nll) else None,
        target_mean=float(values.mean()) if values.size else None,
        target_std=float(values.std()) if values.size else None,
        optimizer=optimizer,
        step_kl=None if np.isnan(step_kl).all() else step_kl,
        smallest_log_variance=metrics["smallest_log_variance"],
        largest_log_variance=metrics["largest_log_variance"],
    )
