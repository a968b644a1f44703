"""What happens in a worker: one kind of use of one set, a random part of the rows at a time."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.tables import data
from benchmarks.experiments.uses.plan import (
    CALIBRATION_SHARE,
    CHUNKS,
    CREPES,
    FIRST,
    LEVEL,
    MAPIE,
    MOST_POOL,
    MOST_TEST,
    MOST_TRAIN,
    PER_ROUND,
    ROUNDS,
    STRATEGIES,
    TEST_SHARE,
    Job,
)
from benchmarks.machinery.environments import environment, run_module
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.estimator import Fisher8Regressor

Rows = tuple[np.ndarray, np.ndarray]

# One method for members that are trained again in every round: the comparison is about the rows.
FEW_ROWS: dict[str, Any] = {"n_members": 3, "max_steps": 1500}


def run_job(job: Job, report: Report) -> None:
    """Runs the repetitions that are missing and writes the cell after each of them."""
    store = Store(job.results)
    result = store.read(job.cell, job.spec) or {"repetitions": []}
    done = list(result["repetitions"])
    origin = provenance(job.command)
    for number in range(len(done), job.repetitions):
        seed = seed_of("uses", job.kind, job.dataset, number, job.seed) & 0x7FFFFFFF
        done.append(USE[job.kind](job, seed))
        whole = {"repetitions": done, "machine": machine()}
        store.write(job.cell, spec=job.spec, result=whole, provenance=origin)
        report(1)


def parts_of(job: Job, seed: int, test_share: float) -> tuple[Rows, Rows]:
    """All rows of the set in a random order: those that may train, and those that test."""
    split = data.load(job.data)[0]
    inputs = np.concatenate([split.train_inputs, split.test_inputs])
    targets = np.concatenate([split.train_targets, split.test_targets])
    order = np.random.default_rng(seed).permutation(len(targets))
    tested = min(round(test_share * len(targets)), MOST_TEST)
    train, test = order[tested:], order[:tested]
    return (inputs[train], targets[train]), (inputs[test], targets[test])


def regressor(seed: int, **settings: Any) -> Fisher8Regressor:
    """The estimator with its defaults but for `settings`."""
    return Fisher8Regressor(random_state=seed, show_progress=False, **settings)


def run_intervals(job: Job, seed: int) -> dict[str, Any]:
    """Coverage and mean width of every kind of interval, by models of all rows and of 4 of 5."""
    (inputs, targets), test = parts_of(job, seed, TEST_SHARE)
    inputs, targets = inputs[:MOST_TRAIN], targets[:MOST_TRAIN]
    whole = regressor(seed).fit(inputs, targets)
    found = {
        "model": whole.predict_interval(test[0], LEVEL),
        "cv_plus": whole.predict_interval(test[0], LEVEL, method="conformal"),
    }
    few = round(CALIBRATION_SHARE * len(targets))
    known = inputs[:few], targets[:few]
    part = regressor(seed).fit(inputs[few:], targets[few:]).calibrate(*known)
    found["part_model"] = part.predict_interval(test[0], LEVEL)
    found["calibrated"] = part.predict_interval(test[0], LEVEL, method="conformal")
    moments = [np.stack(part.predict(x, return_std=True), axis=1) for x in (known[0], test[0])]
    others, versions = ask_others(job.environments, moments[0], known[1], moments[1])
    scores = {
        name: {
            "coverage": float(np.mean((low <= test[1]) & (test[1] <= high))),
            "width": float(np.mean(high - low)),
        }
        for name, (low, high) in (found | others).items()
    }
    return {"scores": scores, "rows": len(targets), "test_rows": len(test[1]), "versions": versions}


def ask_others(
    environments: Path, known: np.ndarray, targets: np.ndarray, new: np.ndarray
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, str]]:
    """The intervals of MAPIE and crepes around the same predictions."""
    python = environment([MAPIE, CREPES], environments, library=False)
    with tempfile.TemporaryDirectory() as name:
        np.savez(Path(name) / "asked.npz", known=known, targets=targets, new=new)
        module = "benchmarks.experiments.uses.others"
        ended = run_module(python, module, [name, str(LEVEL)])
        if ended.code:
            raise RuntimeError(f"{module} failed: {ended.errors[-2000:]}")
        with np.load(Path(name) / "answer.npz") as arrays:
            answer = dict(arrays)
    versions = json.loads(str(answer.pop("versions")))
    return {name: (ends[:, 0], ends[:, 1]) for name, ends in answer.items()}, versions


def run_labels(job: Job, seed: int) -> dict[str, Any]:
    """The NLL on test rows after every round, for each way to choose the rows to label."""
    pool, test = parts_of(job, seed, TEST_SHARE)
    pool = pool[0][:MOST_POOL], pool[1][:MOST_POOL]
    return {"nll": {name: _learn(name, pool, test, seed) for name in STRATEGIES}}


def _learn(strategy: str, pool: Rows, test: Rows, seed: int) -> list[float]:
    """Rows are in random order, so the first ones are a random start."""
    labelled, scores = np.arange(FIRST), []
    for _ in range(ROUNDS + 1):
        model = regressor(seed, **FEW_ROWS).fit(pool[0][labelled], pool[1][labelled])
        scores.append(float(np.mean(model.nll(*test))))
        others = np.setdiff1d(np.arange(len(pool[1])), labelled)
        worth = WORTH[strategy](model, pool[0][others])
        labelled = np.concatenate([labelled, others[np.argsort(-worth, kind="stable")[:PER_ROUND]]])
    return scores


WORTH: dict[str, Callable[[Fisher8Regressor, np.ndarray], np.ndarray]] = {
    "random": lambda model, inputs: -np.arange(len(inputs)),
    "variance": lambda model, inputs: model.predict_uncertainty(inputs)[1],
    "information": lambda model, inputs: model.predict_information(inputs),
}


def run_updates(job: Job, seed: int) -> dict[str, Any]:
    """NLL and processor seconds after every chunk, by `partial_fit` and by a fit to all so far."""
    (inputs, targets), test = parts_of(job, seed, 0.1)
    chunks = np.array_split(np.arange(len(targets)), CHUNKS)
    updated = regressor(seed)
    scores: dict[str, list[float]] = {"partial_fit": [], "fit": []}
    seconds: dict[str, list[float]] = {"partial_fit": [], "fit": []}

    def add(name: str, model: Fisher8Regressor, began: float) -> None:
        seconds[name].append(time.process_time() - began)
        scores[name].append(float(np.mean(model.nll(*test))))

    for chunk in chunks:
        rows = slice(0, chunk[-1] + 1)
        began = time.process_time()
        add("fit", regressor(seed).fit(inputs[rows], targets[rows]), began)
        began = time.process_time()
        add("partial_fit", updated.partial_fit(inputs[chunk], targets[chunk]), began)
    return {"nll": scores, "seconds": seconds, "rows": [int(chunk[-1]) + 1 for chunk in chunks]}


USE = {"intervals": run_intervals, "labels": run_labels, "updates": run_updates}
