import functools
import os
import subprocess
import sys

import pytest

from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.workers import _next_job, _stretches, run_jobs


def write_core(job, report):
    """Leaves a file with the cores that this process may use."""
    folder, name = job
    cores = sorted(os.sched_getaffinity(0))
    (folder / name).write_text(f"{os.getpid()} {cores} {provenance('x')['threads']}")
    report(2.0)


def fail_on_three(job, report):
    if job == 3:
        raise ArithmeticError("three is not allowed")


def test_two_processes_do_all_jobs_on_a_core_each(tmp_path):
    reported = []
    jobs = [(tmp_path, f"job{i}") for i in range(5)]
    peak = run_jobs(write_core, jobs, workers=2, report=reported.append)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"job{i}" for i in range(5)]
    assert sum(reported) == 10
    assert peak > 2**20
    words = [p.read_text().split() for p in tmp_path.iterdir()]
    assert str(os.getpid()) not in {pid for pid, _, _ in words}
    assert all(len(cores.strip("[]").split(",")) == 1 for _, cores, _ in words)
    assert {threads for *_, threads in words} == {"1"}


_SUMS = """
import hashlib, sys
from benchmarks.machinery.threads import use_one_thread
if "one" in sys.argv:
    use_one_thread()
import jax, jax.numpy as jnp, numpy as np
a = jax.random.normal(jax.random.key(0), (1024, 784), "float32")
b = jax.random.normal(jax.random.key(1), (784, 512), "float32")
print(hashlib.sha256(np.asarray(jax.jit(lambda a, b: (a @ b).T @ a)(a, b))).hexdigest())
"""


def test_one_thread_gives_the_same_bits_on_any_number_of_cores():
    """Pinned to a core and on all of them; without the setting these differ on two cores."""

    def bits(cores, *words):
        pin = functools.partial(os.sched_setaffinity, 0, cores)
        command = [sys.executable, "-c", _SUMS, *words]
        return subprocess.run(command, check=True, capture_output=True, preexec_fn=pin).stdout

    cores = os.sched_getaffinity(0)
    assert bits({min(cores)}, "one") == bits(cores, "one") == bits({min(cores)})


def test_one_worker_is_this_process(tmp_path):
    run_jobs(write_core, [(tmp_path, "a")], workers=1, report=lambda amount: None)
    assert (tmp_path / "a").read_text().startswith(str(os.getpid()))


def test_a_failing_job_stops_the_run_with_its_traceback():
    with pytest.raises(RuntimeError, match="three is not allowed"):
        run_jobs(fail_on_three, [1, 2, 3, 4], workers=2, report=lambda amount: None)


def test_neighbours_stay_together_and_idle_workers_take_from_the_longest():
    queues = _stretches(list("aabbcc"), 2)
    assert queues == [list("aab"), list("bcc")]
    assert [_next_job(queues, 0)[0] for _ in range(4)] == ["a", "a", "b", "c"]
    assert [_next_job(queues, 1)[0] for _ in range(2)] == ["b", "c"]
    assert _next_job(queues, 0) is None
