"""One job of the rotated-digit table: draw the problem, train, evaluate, store."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.rotated_mnist.data import Digits, Problem, load_digits, make_problem
from benchmarks.experiments.rotated_mnist.evidence import (
    Evidences,
    start_evidences,
    update_epochs,
    update_evidences,
)
from benchmarks.experiments.rotated_mnist.networks import (
    EvidenceSetup,
    make_setup,
    predictive_head,
    representation,
)
from benchmarks.experiments.rotated_mnist.plan import BATCH, PRIOR_GRID, SETTINGS, Job
from benchmarks.machinery.checkpoints import resumed
from benchmarks.machinery.loop import Datasets, Schedule, TrainState, start, train
from benchmarks.machinery.networks import stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_epoch
from benchmarks.machinery.seeds import generator, seed_of
from benchmarks.machinery.step import Run
from benchmarks.machinery.store import Store
from benchmarks.machinery.training import Setup
from benchmarks.machinery.workers import Report
from fisher8_jax.metrics import ece, nll, rmse

VALIDATION_SHARE = 0.1
EVALUATIONS = 20
# Trainings of at least so many epochs also record feature accuracy as they go, from a regression on
# so many training images: on all of them it would cost as much as the training.
CURVE_EPOCHS, CURVE_ROWS = 20, 10_000


class History(NamedTuple):
    """What is known of a training while it runs; rows not reached are nan."""

    loss: np.ndarray  # (epochs,), mean training loss
    epoch: np.ndarray  # (evaluations,)
    scores: np.ndarray  # (evaluations, 3): RMSE, NLL, ECE on the test part
    features: np.ndarray | None  # (evaluations,), feature accuracy in percent; of long trainings
    evidences: Evidences | None = None

    def as_result(self) -> dict[str, Any]:
        """What is stored of it."""
        fields = self._asdict()
        if self.evidences is not None:
            fields["evidences"] = self.evidences.as_result()
        return {name: values for name, values in fields.items() if values is not None}


def run_job(job: Job, report: Report) -> None:
    """Trains and scores one network and writes its cell."""
    problem = load_problem(job.images, job.data, job.regime, job.seed)
    prior = job.prior if job.prior is not None else choose_prior(job, problem, report)
    rows = len(problem.train.inputs)
    setup = make_setup(job.method, prior=prior, rows=rows, epochs=job.epochs)
    folder = job.scratch / job.cell
    params, history = fit(job, setup, problem, None, folder, report)
    result = {
        **dict(zip(("rmse", "nll", "ece"), evaluate(job, setup, params, problem), strict=True)),
        "feature_accuracy": probe(job.method, params, problem),
        "prior": prior,
        "target_scale": problem.scale,
        "history": history.as_result(),
    }
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


@functools.lru_cache(maxsize=2)
def load_problem(images: str, data: Path | None, regime: str, seed: int) -> Problem:
    """The problem of one regime and seed, kept for the next job."""
    return make_problem(_digits(images, data), regime, seed)


@functools.lru_cache(maxsize=1)
def _digits(images: str, data: Path | None) -> Digits:
    return load_digits(images, data)


def choose_prior(job: Job, problem: Problem, report: Report) -> float:
    """The value of the grid with the lowest last NLL on a tenth of the training part."""
    store = Store(job.results)
    rows = generator("rotated_mnist", job.seed, "split").permutation(len(problem.train.inputs))
    held = round(VALIDATION_SHARE * len(rows))
    losses = []
    for prior in PRIOR_GRID:
        name, spec = job.grid_cell(prior), {**job.spec, "prior": prior, "rows": len(rows) - held}
        stored = store.read(name, spec)
        if stored is None:
            value = _trial(job, problem, prior, rows[held:], rows[:held], report)
            stored = {"validation_nll": value}
            store.write(name, spec=spec, result=stored, provenance=provenance(job.command))
        value = stored["validation_nll"]
        losses.append(np.inf if value is None else value)
    return PRIOR_GRID[int(np.nanargmin(losses))]


def _trial(job, problem, prior, train_rows, validation_rows, report) -> float:
    setup = make_setup(job.method, prior=prior, rows=len(train_rows), epochs=job.epochs)
    folder = job.scratch / job.grid_cell(prior)
    params, _ = fit(job, setup, problem, train_rows, folder, report)
    inputs = problem.train.inputs[validation_rows]
    dist = predict_degrees(job, setup, params, inputs, problem.scale)
    return float(nll(dist, jnp.asarray(problem.train.noisy[validation_rows], jnp.float32)))


def fit(
    job: Job,
    setup: Setup,
    problem: Problem,
    rows: np.ndarray | None,
    folder: Path,
    report: Report,
) -> tuple[Any, History]:
    """Trains on `rows` of the training part (all by default), going on from a checkpoint.

    Returns:
        The parameters, the last ones or for empirical Bayes the best, and how it went.
    """
    chosen = slice(None) if rows is None else rows
    inputs, targets = problem.train.inputs[chosen], problem.train_targets[chosen]
    datasets = Datasets(jnp.asarray(inputs)[None], jnp.asarray(targets)[None])
    rng = generator("rotated_mnist", job.seed, "init")
    init = setup.network.init(rng, inputs.shape[1])  # type: ignore[attr-defined]
    by_evidence = isinstance(setup, EvidenceSetup)
    evidences = start_evidences(init, job.epochs) if by_evidence else None
    state = start(setup.task, stack_members([init]), None, draw_run(job, evidences), datasets)
    history = _empty_history(job.epochs, evidences)
    if job.epochs == 0:
        _look(job, setup, state, problem, history, 0)
        return _of_run(state), history
    spec = {**job.spec, "rows": len(inputs)}
    with resumed(folder, spec, (state, history)) as ((state, history), done, save):
        report(done)
        for epoch in range(done, job.epochs):
            schedule, runs = (
                epoch_schedule(job, len(inputs), epoch),
                draw_run(job, history.evidences),
            )
            state, losses = train(setup.task, state, datasets, runs, schedule)
            # A copy, because the old one may still be on its way to disk.
            history = jax.tree.map(np.array, history)
            history.loss[epoch] = np.mean(losses)
            report(1)
            if epoch + 1 in history.epoch:
                _look(job, setup, state, problem, history, epoch + 1)
            if history.evidences is not None and epoch + 1 in update_epochs(job.epochs):
                evidences = update_evidences(
                    history.evidences,
                    setup.network,
                    _of_run(state),
                    (inputs, targets),
                    job.seed,
                    update_epochs(job.epochs).index(epoch + 1),
                )
                history = history._replace(evidences=evidences)
            save((state, history), epoch + 1)
    return _of_run(state) if history.evidences is None else history.evidences.params, history


def _of_run(state: TrainState) -> Any:
    """The parameters of the only run."""
    return jax.tree.map(lambda leaf: leaf[0], state.params)


def _look(
    job: Job, setup: Setup, state: TrainState, problem: Problem, history: History, epoch: int
) -> None:
    """Writes down how the network is after so many epochs."""
    params = _of_run(state)
    index = int(np.flatnonzero(history.epoch == epoch)[0])
    history.scores[index] = evaluate(job, setup, params, problem)
    if history.features is not None:
        history.features[index] = probe(job.method, params, problem, rows=CURVE_ROWS)


def draw_run(job: Job, evidences: Evidences | None = None) -> Run:
    """One training as the only run."""
    seed = seed_of("rotated_mnist", job.seed, "key") & 0xFFFFFFFF
    rate = jnp.asarray([job.learning_rate], jnp.float32)
    settings = rate if evidences is None else (rate, jnp.asarray(evidences.log_precision)[None])
    return Run(settings, jax.random.key(np.uint32(seed))[None], jnp.zeros(1, jnp.int32))


def epoch_schedule(job: Job, rows: int, epoch: int) -> Schedule:
    """The batches of one epoch, the partial one included, and their learning rates."""
    rng = generator("rotated_mnist", job.seed, "batches", epoch)
    order, where = shuffled_epoch(rng, rows, batch=BATCH)
    steps = len(order)
    factor = np.full(steps, job.rate_factor)
    if job.schedule == "cosine":
        share = (epoch * steps + np.arange(steps)) / (job.epochs * steps)
        final = SETTINGS[job.method].final
        factor *= final + (1 - final) * 0.5 * (1 + np.cos(np.pi * share))
    new_epoch = np.arange(steps) == 0
    return Schedule(order[:, None], new_epoch, factor.astype(np.float32), where[:, None])


def evaluate(job: Job, setup: Setup, params: Any, problem: Problem) -> tuple[float, ...]:
    """RMSE against the true angle, NLL and ECE of the noisy one, all in degrees."""
    dist = predict_degrees(job, setup, params, problem.test.inputs, problem.scale)
    noisy = jnp.asarray(problem.test.noisy, jnp.float32)
    angles = jnp.asarray(problem.test.angles, jnp.float32)
    return float(rmse(dist, angles)), float(nll(dist, noisy)), float(ece(dist, noisy))


def predict_degrees(job: Job, setup: Setup, params: Any, inputs: np.ndarray, scale: float) -> Any:
    """The predicted distribution of the noisy angle."""
    dist = _predict(setup, params, inputs)
    return predictive_head(job)(dist).unscale(jnp.zeros(()), jnp.asarray(scale))


@functools.partial(jax.jit, static_argnums=0)
def _predict(setup, params, inputs):
    return setup.predict(params, None, inputs)[0]


def probe(method: str, params: Any, problem: Problem, *, rows: int | None = None) -> float:
    """Percent of test digits that a logistic regression on the representation gets right.

    Args:
        method: decides which layer is the representation.
        params: the network's parameters.
        problem: images and digits.
        rows: how many training images the regression learns from; None for all.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    features: Callable[[Any], np.ndarray] = lambda x: np.asarray(_represent(method, params, x))  # noqa: E731
    train_features, labels = features(problem.train.inputs[:rows]), problem.train.labels[:rows]
    test_features = features(problem.test.inputs)
    if not (np.isfinite(train_features).all() and np.isfinite(test_features).all()):
        return float("nan")
    shift, scale = train_features.mean(0), train_features.std(0)
    scale = np.where(scale == 0, 1, scale)
    with warnings.catch_warnings():
        # It stops on the limit of iterations, as in the published protocol.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression().fit((train_features - shift) / scale, labels)
    return 100 * float(model.score((test_features - shift) / scale, problem.test.labels))


@functools.partial(jax.jit, static_argnums=0)
def _represent(method, params, inputs):
    return representation(method, params, inputs)


def _empty_history(epochs: int, evidences: Evidences | None) -> History:
    """Twenty looks at a training, one at the untrained network."""
    every = max(1, epochs // EVALUATIONS)
    points = np.unique(np.append(np.arange(every, epochs + 1, every), epochs))
    return History(
        loss=np.full(epochs, np.nan),
        epoch=points.astype(np.int32),
        scores=np.full((len(points), 3), np.nan),
        features=np.full(len(points), np.nan) if epochs == 0 or epochs >= CURVE_EPOCHS else None,
        evidences=evidences,
    )
