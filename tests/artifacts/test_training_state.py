"""A killed training resumes to the same result, to the bit."""

import os
import pathlib
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax.artifacts import TrainingCheckpoints

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT_SECONDS = 240


def start(folder, result, pause):
    command = [sys.executable, "-m", "tests.artifacts.train_and_die", folder, result, pause]
    return subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def run_until(folder, result, last_step, pause):
    """Runs until `last_step` is printed and kills the process there; to the end if it is None."""
    process = start(folder, result, pause)
    steps = []
    try:
        if last_step is None:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0
            return [int(line) for line in output.split()]
        for line in process.stdout:
            steps.append(int(line))
            if steps[-1] == last_step:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
    return steps


def test_kill_9_and_resume_to_the_same_result(tmp_path):
    whole = run_until(tmp_path / "whole", tmp_path / "whole.npz", None, 0)
    assert whole == list(range(60))
    first = run_until(tmp_path / "cut", tmp_path / "cut.npz", 27, 0.02)
    assert first[-1] == 27
    assert not (tmp_path / "cut.npz").exists()
    rest = run_until(tmp_path / "cut", tmp_path / "cut.npz", None, 0)
    # It went on from a saved state, not from the beginning.
    assert 0 < rest[0] <= 28
    assert rest[-1] == 59
    with np.load(tmp_path / "whole.npz") as expected, np.load(tmp_path / "cut.npz") as result:
        assert expected.files == result.files
        for name in expected.files:
            np.testing.assert_array_equal(result[name], expected[name])


def test_a_finished_run_is_not_run_again(tmp_path):
    calls = []

    def advance(state, step):
        calls.append(step)
        return {"total": state["total"] + step}

    for _ in range(2):
        with TrainingCheckpoints(tmp_path / "states", every=2) as checkpoints:
            state = checkpoints.run(advance, {"total": jnp.array(0.0)}, steps=5)
    assert float(state["total"]) == 10
    assert calls == [0, 1, 2, 3, 4]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="`every` must be a positive integer, got 0"):
        TrainingCheckpoints(tmp_path, every=0)
