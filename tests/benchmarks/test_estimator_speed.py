"""The seconds of the estimator: every item has a program, and what is stored is printed."""

import subprocess

from benchmarks.costs import estimator_speed
from benchmarks.machinery.store import DEFAULT_RESULTS, Store


def test_cold_items_begin_without_programs(monkeypatch):
    """And every item has the seconds of its own program, on a clock that counts calls."""
    calls = []
    programs = {title: lambda title=title: calls.append(title) for title in estimator_speed.IS_COLD}
    monkeypatch.setattr(estimator_speed.time, "process_time", lambda: float(len(calls)))
    monkeypatch.setattr(estimator_speed, "make_programs", lambda: programs)
    monkeypatch.setattr(estimator_speed.jax, "clear_caches", lambda: calls.append("cleared"))
    monkeypatch.setattr(estimator_speed.jax.config, "update", lambda *setting: None)
    seconds = estimator_speed.measure()
    assert seconds == dict.fromkeys(estimator_speed.IS_COLD, 1.0)
    assert list(seconds) == list(estimator_speed.IS_COLD)
    before = dict(zip(calls[1:], calls, strict=False))
    for title, is_cold in estimator_speed.IS_COLD.items():
        assert (before[title] == "cleared") == is_cold


def test_what_is_stored_is_printed():
    found = estimator_speed.section(Store(DEFAULT_RESULTS))
    assert found is not None
    titles = [*estimator_speed.IS_COLD, *estimator_speed.IN_NEW_PROCESS]
    assert [row[0] for row in found.blocks[0].rows] == titles
    assert estimator_speed.section(Store(DEFAULT_RESULTS / "nowhere")) is None


def test_processes_share_programs_and_their_seconds_are_counted(monkeypatch):
    """Both compile one small program; the second process finds it in the folder of the first."""
    program = """
import glob, os, jax, jax.numpy as jnp
from fisher8_jax._internal.programs import keeps_programs
folder = os.environ["FISHER8_PROGRAM_CACHE"]
print("found" if glob.glob(f"{folder}/**/*-cache", recursive=True) else "nothing", flush=True)
keeps_programs(lambda: jax.jit(lambda x: jnp.sin(x) * 1.8125)(jnp.ones(3)))()
"""
    said, original = [], subprocess.run

    def run(command, **options):
        done = original(command, stdout=subprocess.PIPE, text=True, **options)
        said.append(done.stdout.strip())

    monkeypatch.setattr(estimator_speed, "_PROCESS", program)
    monkeypatch.setattr(estimator_speed.subprocess, "run", run)
    seconds = estimator_speed.measure_processes()
    assert said == ["nothing", "found"]
    assert list(seconds) == list(estimator_speed.IN_NEW_PROCESS)
    assert min(seconds.values()) > 0.1  # importing JAX alone takes longer
