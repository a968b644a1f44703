"""A training from its first step to its last: chunks, validation, callback, checkpoints."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax._internal.progress import Report, report_progress
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.training._data import Data
from fisher8_jax.training._loader import BatchLoader
from fisher8_jax.training._loop import LoggedMetrics, Trained, train_steps
from fisher8_jax.training._method import Method
from fisher8_jax.training._networks import Network
from fisher8_jax.training._plan import Plan
from fisher8_jax.training._validation import (
    Validated,
    start_validation,
    validate,
    validation_nll,
)

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
        shared = self.loader.validation is not None
        nll = validation_nll(self.network, progress.trained, blocks, shared=shared)
        patience = self.plan.patience_after(progress.step)
        validated = validate(progress.trained, progress.validated, nll, patience)
        history = np.array(progress.nll)
        history[index] = nll
        return progress._replace(validated=validated, nll=history)

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
