"""A killed training resumes to the same result, to the bit."""

import os
import pathlib
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax.artifacts import ArtifactError, TrainingCheckpoints
from fisher8_jax.artifacts._checksums import find_damage
from tests.artifacts import train_and_die

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT_SECONDS = 240


def names(folder):
    return sorted(path.name for path in folder.iterdir())


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


def check_equal(whole, cut):
    with np.load(whole) as expected, np.load(cut) as result:
        assert expected.files == result.files
        for name in expected.files:
            np.testing.assert_array_equal(result[name], expected[name])


def test_kill_9_and_resume_to_the_same_result(tmp_path, capsys):
    jax.config.update("jax_enable_x64", False)  # as in the processes below
    train_and_die.main(tmp_path / "whole", tmp_path / "whole.npz", 0)
    assert [int(line) for line in capsys.readouterr().out.split()] == list(range(60))
    first = run_until(tmp_path / "cut", tmp_path / "cut.npz", 27, 0.02)
    assert first[-1] == 27
    assert not (tmp_path / "cut.npz").exists()
    rest = run_until(tmp_path / "cut", tmp_path / "cut.npz", None, 0)
    # It went on from a saved state, not from the beginning.
    assert 0 < rest[0] <= 28
    assert rest[-1] == 59
    check_equal(tmp_path / "whole.npz", tmp_path / "cut.npz")
    assert names(tmp_path / "cut") == names(tmp_path / "whole") == ["55", "60", "run.json"]


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


def add(state, step):
    return state + step


@pytest.fixture
def folder(tmp_path):
    """The states after 5 and 10 steps."""
    with TrainingCheckpoints(tmp_path / "states", every=5, config={"seed": 0}) as checkpoints:
        checkpoints.run(add, jnp.zeros(400), steps=10)
    return tmp_path / "states"


def open_again(folder, **settings):
    return TrainingCheckpoints(folder, **({"every": 5, "config": {"seed": 0}} | settings))


def test_a_folder_with_more_steps_is_refused(folder):
    message = r"already holds a state after 10 steps of the run \{\"seed\": 0\}, and `steps` is 5"
    with open_again(folder) as checkpoints, pytest.raises(ValueError, match=message):
        checkpoints.run(add, jnp.zeros(400), steps=5)


def test_a_folder_of_another_run_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="another run, with `seed` 0 there and 1 here"):
        open_again(folder, config={"seed": 1})
    with pytest.raises(ValueError, match="this is a run without a `config`"):
        open_again(folder, config=None)
    with pytest.raises(TypeError, match="`config` must be plain JSON"):
        open_again(tmp_path / "new", config={"family": TrainingCheckpoints})
    (folder / "run.json").write_bytes(b"\xff")
    with pytest.raises(ArtifactError, match=r"run.json' is damaged"):
        open_again(folder)


def test_a_state_of_another_form_is_refused(folder):
    with open_again(folder) as checkpoints:
        for other in (jnp.zeros(3), jnp.zeros(400, jnp.int32), {"a": jnp.zeros(400)}):
            with pytest.raises(ValueError, match=r"has float64\[400\] at the root where `state`"):
                checkpoints.restore(other)
        with pytest.raises(ValueError, match="has 1 arrays, `state` has 0"):
            checkpoints.restore({})


def test_damage_in_any_file_is_found_and_named(folder):
    """Every file of a state but Orbax's notes about times, eight places in each."""
    files = [path for path in (folder / "10").glob("*/**/*") if path.is_file()]
    assert len(files) > 5
    for path in [*files, folder / "10" / "checksums.json"]:
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 8)):
            damaged = bytearray(content)
            damaged[place] ^= 0x80
            path.write_bytes(damaged)
            assert find_damage(folder / "10") == path
        path.unlink()
        assert find_damage(folder / "10") == path
        path.write_bytes(content)
    assert find_damage(folder / "10") is None


@pytest.mark.parametrize("every", [5, 3])
def test_a_damaged_state_is_named_and_the_one_before_it_used(folder, every):
    path = folder / "10" / "default" / "_METADATA"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    calls = []

    def advance(state, step):
        calls.append(step)
        return state + step

    with open_again(folder, every=every) as checkpoints:
        with pytest.warns(UserWarning, match=r"10/default/_METADATA' is damaged.*after 10 steps"):
            state = checkpoints.run(advance, jnp.zeros(400), steps=10)
        np.testing.assert_array_equal(state, 45.0)
    assert calls == [5, 6, 7, 8, 9]
    with open_again(folder) as checkpoints:  # the damaged state has been replaced
        state, step = checkpoints.restore(jnp.zeros(400))
    assert step == 10
    np.testing.assert_array_equal(state, 45.0)


def test_with_no_intact_state_nothing_begins_anew_by_itself(folder):
    for step in ("5", "10"):
        (folder / step / "checksums.json").unlink()
    with open_again(folder) as checkpoints:
        with pytest.warns(UserWarning, match="checksums.json' is damaged or missing"):  # noqa: SIM117
            with pytest.raises(ArtifactError, match="no intact state"):
                checkpoints.restore(jnp.zeros(400))
        with pytest.raises(ArtifactError, match="no intact state"):
            checkpoints.restore(jnp.zeros(400))


def test_one_writes_and_others_may_read(folder):
    with open_again(folder) as writer:
        with open_again(folder) as reader:
            assert reader.restore(jnp.zeros(400))[1] == 10
            with pytest.raises(RuntimeError, match="Another `TrainingCheckpoints` writes to"):
                reader.save(jnp.zeros(400), 11)
            with pytest.raises(RuntimeError, match="Another `TrainingCheckpoints` writes to"):
                reader.run(add, jnp.zeros(400), steps=20)
        with pytest.raises(ValueError, match=r"larger than that of the newest state.*10, got 7"):
            writer.save(jnp.zeros(400), 7)
        writer.save(jnp.zeros(400), 11)
    assert names(folder) == ["10", "11", "run.json"]


def test_a_folder_is_removed_when_it_is_no_longer_needed(folder):
    with open_again(folder) as checkpoints:
        checkpoints.save(jnp.zeros(400), 11)
        with open_again(folder) as reader, pytest.raises(RuntimeError, match="Another"):
            reader.remove()
        checkpoints.remove()
    assert not folder.exists()
    checkpoints.close()


def test_what_a_killed_process_left_half_written_goes(folder):
    half = folder / "15.orbax-checkpoint-tmp"
    (half / "default").mkdir(parents=True)
    (half / "default" / "data").write_bytes(b"half")
    with open_again(folder) as writer:
        assert writer.restore(jnp.zeros(400))[1] == 10
    assert names(folder) == ["10", "5", "run.json"]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="`every` must be a positive integer, got 0"):
        TrainingCheckpoints(tmp_path, every=0)
