"""Trains one program in its own environment: `python -m ...train JOB.json CELL.json`."""

import importlib
import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.experiments.adoption.plan import PROGRAMS, changed_lines
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.threads import use_one_thread


def cell(job: dict[str, Any]) -> dict[str, Any]:
    """Result and provenance of one job: for every rate and seed, the scores at every evaluation."""
    module = importlib.import_module(f"benchmarks.experiments.adoption.programs.{job['program']}")
    began = time.process_time()
    program = module.Adopted(job)
    runs = [[program.run(rate, seed) for seed in range(job["seeds"])] for rate in job["rates"]]
    result = {
        "steps": program.looks,
        "runs": runs,
        "changed_lines": changed_lines(job["program"]),
        "seconds": round(time.process_time() - began, 1),
    }
    package = PROGRAMS[job["program"]].package
    origin = provenance(job["command"])
    origin["versions"][package] = importlib.metadata.version(package)
    return {"result": result, "provenance": origin}


if __name__ == "__main__":
    use_one_thread()
    asked, answer = map(Path, sys.argv[1:])
    found = json.dumps(cell(json.loads(asked.read_text())))
    answer.write_text(found)
