"""What happens in a worker: five networks and their posteriors, and images they have not seen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.rotated_mnist.data import load_digits, rotate
from benchmarks.experiments.unfamiliar_digits.plan import (
    BATCH,
    CLASSES,
    LARGEST_ANGLE,
    MEMBERS,
    NOISE,
    ROWS,
    STEPS,
    TEST_ROWS,
    UNFAMILIAR,
    WIDTHS,
    Job,
)
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.posterior import fit_posterior, train_by_evidence

PREDICT = Predict(Mlp(WIDTHS, jax.nn.silu))
Scores = dict[str, np.ndarray]


class Problem(NamedTuple):
    """Images as rows of pixels, angles in units of `LARGEST_ANGLE`."""

    inputs: np.ndarray
    targets: np.ndarray
    familiar: np.ndarray
    unfamiliar: dict[str, np.ndarray]


def run_job(job: Job, report: Report) -> None:
    """Trains, scores all images and writes the cell."""
    problem = make_problem(job)
    scores = scores_of(problem, job.seed)
    result = {
        "auroc": {
            kind: {name: auroc(values["familiar"], values[kind]) for name, values in scores.items()}
            for kind in UNFAMILIAR
        },
        "median": {
            name: {kind: float(np.median(v)) for kind, v in values.items()}
            for name, values in scores.items()
        },
    }
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)
    report(1)


def make_problem(job: Job) -> Problem:
    """Some classes and angles to train on, and all the others."""
    digits = load_digits(job.images, job.data)
    rng = generator("unfamiliar_digits", job.images, job.seed)
    images, labels = digits.train_images / digits.white, digits.train_labels
    tests, test_labels = digits.test_images / digits.white, digits.test_labels
    known, known_test = np.isin(labels, CLASSES), np.isin(test_labels, CLASSES)

    def some(pool: np.ndarray, rows: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        chosen = pool[rng.permutation(len(pool))[:rows]]
        angles = rng.uniform(low, high, len(chosen)) * rng.choice([-1, 1], len(chosen))
        return _rows(rotate(chosen, angles)), angles

    inputs, angles = some(images[known], ROWS, 0, LARGEST_ANGLE)
    noisy = angles + NOISE * rng.normal(size=len(angles))
    familiar, _ = some(tests[known_test], TEST_ROWS, 0, LARGEST_ANGLE)
    unfamiliar = {
        "angles": some(tests[known_test], TEST_ROWS, 60, 90)[0],
        "far_angles": some(tests[known_test], TEST_ROWS, 90, 180)[0],
        "classes": some(tests[~known_test], TEST_ROWS, 0, LARGEST_ANGLE)[0],
        "shuffled": familiar[:, rng.permutation(familiar.shape[1])],
        "noise": rng.uniform(0, 1, familiar.shape).astype(np.float32),
    }
    shift = inputs.mean(0)
    targets = (noisy / LARGEST_ANGLE).astype(np.float32)
    moved = {kind: x - shift for kind, x in unfamiliar.items()}
    return Problem(inputs - shift, targets, familiar - shift, moved)


def _rows(images: np.ndarray) -> np.ndarray:
    """Pixels in rows; those of large images averaged over squares of four."""
    rows, side, _ = images.shape
    if side > 14:
        images = images.reshape(rows, side // 2, 2, side // 2, 2).mean((2, 4))
    return images.reshape(rows, -1).astype(np.float32)


def scores_of(problem: Problem, seed: int) -> dict[str, Scores]:
    """Every score of every kind of images; large should mean unfamiliar."""
    images = {"familiar": problem.familiar, **problem.unfamiliar}
    found: list[dict[str, Any]] = []
    for member in range(MEMBERS):
        rng = generator("unfamiliar_digits", "init", seed, member)
        start = PREDICT.network.init(rng, problem.inputs.shape[1])
        x, y = jnp.asarray(problem.inputs), jnp.asarray(problem.targets)
        order = MEMBERS * seed + member
        trained = train_by_evidence(PREDICT, start, x, y, steps=STEPS, batch_size=BATCH, seed=order)
        posterior = fit_posterior(PREDICT, trained.params, x, y, prior=trained.prior, tune=False)
        found.append({kind: posterior.predict(x) for kind, x in images.items()})
    scores: dict[str, Scores] = {}
    for kind in images:
        dists = [member[kind] for member in found]
        means, noise, unknown = (
            np.stack([np.asarray(getattr(dist, name)) for dist in dists])
            for name in ("mean", "aleatoric", "epistemic")
        )
        every = {
            "posterior": unknown[0],
            "five_posteriors": unknown.mean(0) + means.var(0),
            "disagreement": means.var(0),
            "predicted": noise[0],
            "predicted_of_five": noise.mean(0),
        }
        for name, values in every.items():
            scores.setdefault(name, {})[kind] = values
    return scores


def auroc(familiar: np.ndarray, unfamiliar: np.ndarray) -> float:
    """How often an unfamiliar image has the larger score; ties count half."""
    ranks = rankdata(np.concatenate([familiar, unfamiliar]))[len(familiar) :]
    n, m = len(familiar), len(unfamiliar)
    return float((ranks.sum() - m * (m + 1) / 2) / (n * m))
