"""What happens in a worker: a program's own interpreter trains it and answers with a cell."""

import hashlib
import json
import os
import shutil
import subprocess

from benchmarks.experiments.adoption.plan import ROOT, Job
from benchmarks.machinery.data import cache_dir
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
    """Writes the cell that the program's environment computes.

    Its finished trainings and compiled programs stay in a folder until the cell is whole.
    """
    key = hashlib.sha256(json.dumps([job.cell, job.spec]).encode()).hexdigest()
    folder = cache_dir() / "adoption" / key[:16]
    folder.mkdir(parents=True, exist_ok=True)
    asked, answer, parts = (folder / f"{name}.json" for name in ("job", "cell", "parts"))
    data = None if job.data is None else str(job.data)
    asked.write_text(json.dumps({**job.spec, "data": data, "command": job.command}))
    command = [str(job.python), "-m", TRAIN, str(asked), str(answer), str(parts)]
    environment = {**os.environ, **SETTINGS, "JAX_COMPILATION_CACHE_DIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        raise RuntimeError(f"{job.cell} failed: {done.stderr.strip()[-2000:]}")
    cell = json.loads(answer.read_text())
    Store(job.results).write(job.cell, spec=job.spec, **cell)
    shutil.rmtree(folder)
    report(1)
