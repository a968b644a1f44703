"""Trains one program in its own environment: `python -m ...train JOB.json CELL.json PARTS.json`."""

import functools
import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.experiments.adoption import causes
from benchmarks.experiments.adoption.plan import CAUSES, PROGRAMS, changed_lines
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.threads import use_one_thread


def cell(job: dict[str, Any], parts: "Parts") -> dict[str, Any]:
    """Result and provenance of one job: for every rate and seed, the scores at every evaluation.

    A module of `programs` has a class `Adopted`, made from a job, with `looks`, the steps or
    whatever else is evaluated, and `run(rate, seed)`.
    """
    module = importlib.import_module(f"benchmarks.experiments.adoption.programs.{job['program']}")
    began = time.process_time()
    program = module.Adopted(job)
    parts.seconds["start"] = time.process_time() - began
    runs: Any
    if job["method"] == CAUSES:
        runs = {
            name: parts.get(name, functools.partial(causes.scores, program, name, job))
            for name in causes.VARIANTS
        }
    else:
        runs = [
            [
                parts.get(f"{rate} {seed}", functools.partial(program.run, rate, seed))
                for seed in range(job["seeds"])
            ]
            for rate in job["rates"]
        ]
    result = {
        "steps": program.looks,
        "runs": runs,
        "changed_lines": changed_lines(job["program"]),
        "seconds": round(sum(parts.seconds.values()), 1),
    }
    package = PROGRAMS[job["program"]].package
    origin = provenance(job["command"])
    origin["versions"][package] = importlib.metadata.version(package)
    return {"result": result, "provenance": origin}


class Parts:
    """The trainings of a cell that are done, in a file: an interrupted cell goes on from there."""

    def __init__(self, path: Path):
        self.path = path
        found = json.loads(path.read_text()) if path.exists() else {"done": {}, "seconds": {}}
        self.done, self.seconds = found["done"], found["seconds"]

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """What is in the file, or what `compute` says."""
        if name not in self.done:
            began = time.process_time()
            self.done[name] = compute()
            self.seconds[name] = time.process_time() - began
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps({"done": self.done, "seconds": self.seconds}))
            whole.replace(self.path)
        return self.done[name]


if __name__ == "__main__":
    use_one_thread()
    asked, answer, parts = map(Path, sys.argv[1:])
    found = json.dumps(cell(json.loads(asked.read_text()), Parts(parts)))
    answer.write_text(found)
