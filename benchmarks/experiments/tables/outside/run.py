"""Fits one baseline in its own environment: `python -m ...outside.run FOLDER`.

`asked.npz` in the folder holds the rows of a split with standardised targets, and the question as
JSON. The answer is `versions.json`, written first, and `answer.npz`: the predictions and processor
seconds. A limit of processor seconds is the operating system's, which ends what does not finish.
"""

import importlib
import importlib.metadata
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.machinery.environments import leave_with_parent

Predictions = dict[str, np.ndarray]
"""`mean` and `variance`, with the members of a mixture first, or `quantiles` and their `levels`."""

Fit = Callable[[str, np.ndarray, np.ndarray, int], Callable[[np.ndarray], Predictions]]
"""From the model's name, inputs, targets and a seed to predictions at other inputs."""

_SECONDS_LEFT = 30  # between the signal that can be caught and the one that cannot be ignored


def main(folder: Path) -> None:
    """Fits, predicts and writes."""
    with np.load(folder / "asked.npz") as arrays:
        rows = {name: arrays[name] for name in ("inputs", "targets", "test_inputs")}
        question = json.loads(str(arrays["question"]))
    module = importlib.import_module(question["module"])  # not timed: it is not the model's work
    versions = {name: importlib.metadata.version(name) for name in module.PACKAGES}
    (folder / "versions.json").write_text(json.dumps(versions))
    if question["seconds"]:
        limit = int(time.process_time() + question["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + _SECONDS_LEFT))
    began = time.process_time()
    fit: Fit = module.fit
    predict = fit(question["model"], rows["inputs"], rows["targets"], question["seed"])
    fitted = time.process_time()
    predictions = predict(rows["test_inputs"])
    times = {"fit_seconds": fitted - began, "predict_seconds": time.process_time() - fitted}
    np.savez(folder / "answer.npz", times=np.array(json.dumps(times)), **predictions)  # type: ignore[arg-type]


if __name__ == "__main__":
    leave_with_parent()
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
