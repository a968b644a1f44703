"""A training from its first step to its last: chunks, validation, callback, checkpoints."""

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
from fisher8_jax.optimizers import AverageState
from fisher8_jax.training._data import BatchLoader, Data, Metrics, Params, Variables
from fisher8_jax.training._method import Method, StepInfo
from fisher8_jax.training._networks import Network
from fisher8_jax.training._plan import Plan
from fisher8_jax.training._validation import (
    LOG_FACTORS,
    Trained,
    Validated,
    best_factor,
    start_validation,
    validate,
    validation_nll,
)

LoggedMetrics: TypeAlias = tuple[tuple[str, Callable[[StepInfo], Array]], ...]


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
        return LOG_FACTORS if self.plan.free_variance else (0.0,)

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
