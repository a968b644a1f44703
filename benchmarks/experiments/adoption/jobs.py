"""What happens in a worker: a program's own interpreter trains it and answers with a cell."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.experiments.adoption.plan import ROOT, Job
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report

TRAIN = "benchmarks.experiments.adoption.train"

# Programs make their training step anew for every run; the same program is compiled once.
SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def run_job(job: Job, report: Report) -> None:
    """Writes the cell that the program's environment computes."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "job.json", Path(folder) / "cell.json"
        data = None if job.data is None else str(job.data)
        asked.write_text(json.dumps({**job.spec, "data": data, "command": job.command}))
        command = [str(job.python), "-m", TRAIN, str(asked), str(answer)]
        environment = {**os.environ, **SETTINGS, "JAX_COMPILATION_CACHE_DIR": folder}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        if done.returncode:
            raise RuntimeError(f"{job.cell} failed: {done.stderr.strip()[-2000:]}")
        cell = json.loads(answer.read_text())
    Store(job.results).write(job.cell, spec=job.spec, **cell)
    report(1)
