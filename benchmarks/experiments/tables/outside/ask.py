"""This side of `run.py`: hands a split to a model's own environment and takes its predictions."""

import json
import signal
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.tables.plan import OUTSIDE, Job
from benchmarks.machinery.environments import run_module

RUN = "benchmarks.experiments.tables.outside.run"
MODULES = "benchmarks.experiments.tables.outside"

# Read by PyTorch and its kin, each of which would start a thread per core.
ONE_THREAD = dict.fromkeys(("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")


class Answer(NamedTuple):
    """What a program made of a split.

    Attributes:
        predictions: as in `run.Predictions`; None if it used up its processor seconds.
        facts: processor seconds of fit and prediction, how many rows trained and how many did not.
        versions: of its packages.
    """

    predictions: dict[str, np.ndarray] | None
    facts: dict[str, Any]
    versions: dict[str, str]


def ask(
    job: Job, inputs: np.ndarray, targets: np.ndarray, test_inputs: np.ndarray, seed: int
) -> Answer:
    """Fits `job.model` to standardised targets and predicts."""
    assert job.python is not None
    outside = OUTSIDE[job.model]
    kept = _kept(len(targets), outside.rows, seed)
    counts = {"train_rows": len(kept), "rows_left_out": len(targets) - len(kept)}
    question = {
        "module": f"{MODULES}.{outside.module}",
        "model": job.model,
        "seed": seed,
        "seconds": outside.seconds,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(
            folder / "asked.npz",
            question=np.array(json.dumps(question)),
            inputs=inputs[kept],
            targets=targets[kept],
            test_inputs=test_inputs,
        )
        ended = run_module(job.python, RUN, [name], ONE_THREAD)
        if ended.code and ended.code != -signal.SIGXCPU:
            raise RuntimeError(f"{job.cell} failed: {ended.errors[-2000:]}")
        versions = json.loads((folder / "versions.json").read_text())
        if ended.code:
            return Answer(None, {**counts, "fit_seconds": outside.seconds}, versions)
        with np.load(folder / "answer.npz") as arrays:
            predictions = dict(arrays)
    return Answer(predictions, counts | json.loads(str(predictions.pop("times"))), versions)


def _kept(rows: int, most: int | None, seed: int) -> np.ndarray:
    if most is None or rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).permutation(rows)[:most])
