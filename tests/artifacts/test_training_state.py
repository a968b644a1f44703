"""A killed training resumes to the same bits; damage, full disks and other writers are noticed."""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax.artifacts import ArtifactError, TrainingCheckpoints, load_artifact, save_artifact
from fisher8_jax.artifacts._training_state import find_damage
from tests.artifacts import train_and_die

ROOT = pathlib.Path(__file__).parents[2]
TEMPLATE = jnp.zeros(400)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_kill_9_and_resume_to_the_same_bits(tmp_path, capsys):
    jax.config.update("jax_enable_x64", False)  # as in the process below
    whole = train_and_die.train(tmp_path / "whole", steps=30, every=5)
    arguments = [tmp_path / "cut", tmp_path / "unfinished", "30", "5", "0.02"]
    command = [sys.executable, "-m", "tests.artifacts.train_and_die", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert any(line == "17\n" for line in process.stdout)
    finally:
        process.kill()
        process.communicate(timeout=60)
    capsys.readouterr()
    cut = train_and_die.train(tmp_path / "cut", steps=30, every=5)
    first = int(capsys.readouterr().out.split()[1])
    assert first in (5, 10, 15)  # from a saved state, not from the beginning
    jax.tree.map(np.testing.assert_array_equal, cut, whole)
    assert names(tmp_path / "cut") == names(tmp_path / "whole") == ["25", "30", "run.json"]


@pytest.fixture
def folder(tmp_path):
    """The states after 5 and 10 steps: 400 times the number of steps."""
    with TrainingCheckpoints(tmp_path / "states", every=5, config={"seed": 0}) as checkpoints:
        assert checkpoints.restore(TEMPLATE) is None
        for step in range(1, 12):
            checkpoints.save(step, TEMPLATE + step)
    return tmp_path / "states"


def open_again(folder, **settings):
    return TrainingCheckpoints(folder, **({"config": {"seed": 0}} | settings))


def check_newest(checkpoints, step):
    state, found = checkpoints.restore(TEMPLATE)
    assert found == step
    np.testing.assert_array_equal(state, float(step))


def test_every_fifth_state_is_saved_and_the_newest_restored(folder):
    assert names(folder) == ["10", "5", "run.json"]
    with open_again(folder) as checkpoints:
        check_newest(checkpoints, 10)
        with pytest.raises(ValueError, match=r"larger than that of the newest state.*10, got 7"):
            checkpoints.save(7, TEMPLATE)
    with pytest.raises(ValueError, match="`every` must be a positive integer, got 0"):
        open_again(folder, every=0)


def test_a_folder_of_another_run_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="another run, with `seed` 0 there and 1 here"):
        open_again(folder, config={"seed": 1})
    with pytest.raises(ValueError, match="another run, with `seed` 0 there and None here"):
        open_again(folder, config=None)
    with pytest.raises(TypeError, match="`config` must be plain JSON"):
        open_again(tmp_path / "new", config={"family": TrainingCheckpoints})
    for content in (b"\xff", b"[]", b'{"config": 3}'):
        (folder / "run.json").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"run.json' is damaged"):
            open_again(folder)


def test_a_state_of_another_form_is_refused(folder):
    with open_again(folder) as checkpoints:
        for other in (jnp.zeros(3), jnp.zeros(400, jnp.int32), {"a": jnp.zeros(400)}):
            with pytest.raises(ValueError, match=r"has float64\[400\] at the root where the templ"):
                checkpoints.restore(other)
        with pytest.raises(ValueError, match="has 1 where the template has 0 arrays"):
            checkpoints.restore({})


def test_damage_in_any_file_is_found_and_named(folder):
    """Every file of a state but Orbax's notes about times."""
    files = [path for path in (folder / "10").glob("*/**/*") if path.is_file()]
    assert len(files) > 5
    for path in [*files, folder / "10" / "checksums.json"]:
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 0x80]) + content[1:])
        assert find_damage(folder / "10") == path
        path.unlink()
        assert find_damage(folder / "10") == path
        path.write_bytes(content)
    assert find_damage(folder / "10") is None


def test_a_damaged_state_is_named_and_the_one_before_it_used(folder):
    (folder / "10" / "default" / "_METADATA").write_bytes(b"\xff")
    with open_again(folder) as checkpoints:
        with pytest.warns(UserWarning, match=r"10/default/_METADATA' is damaged.*after 10 steps"):
            check_newest(checkpoints, 5)
        checkpoints.save(8, TEMPLATE + 8)  # the damaged state goes
        check_newest(checkpoints, 8)
    assert names(folder) == ["5", "8", "run.json"]


def test_with_no_intact_state_nothing_begins_anew_by_itself(folder):
    for step in ("5", "10"):
        (folder / step / "checksums.json").unlink()
    with open_again(folder) as checkpoints:
        with pytest.warns(UserWarning, match="checksums.json' is damaged or missing"):  # noqa: SIM117
            with pytest.raises(ArtifactError, match="no intact state"):
                checkpoints.restore(TEMPLATE)
        with pytest.raises(ArtifactError, match="no intact state"):
            checkpoints.restore(TEMPLATE)


def test_one_writes_and_others_may_read(folder):
    with open_again(folder) as writer, open_again(folder) as reader:
        check_newest(reader, 10)
        with pytest.raises(
            RuntimeError, match="read-only, or another `TrainingCheckpoints` writes"
        ):
            reader.save(11, TEMPLATE)
        writer.save(11, TEMPLATE)
    assert names(folder) == ["10", "11", "run.json"]


def test_what_a_killed_process_left_half_written_goes(folder):
    half = folder / "15.orbax-checkpoint-tmp" / "default"
    half.mkdir(parents=True)
    (half / "data").write_bytes(b"half")
    with open_again(folder) as writer:
        check_newest(writer, 10)
    assert names(folder) == ["10", "5", "run.json"]


@pytest.fixture
def full_disk():
    """No file may grow beyond 100 kB, as if the disk were full there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_raised_and_the_states_before_it_stay(folder, full_disk, capfd):
    large = jnp.asarray(np.random.default_rng(0).normal(size=100_000))
    with pytest.raises(ValueError, match="File too large"), open_again(folder) as checkpoints:
        checkpoints.save(11, large)
    full_disk()  # there is space again
    with open_again(folder) as checkpoints:
        check_newest(checkpoints, 10)
        checkpoints.save(11, TEMPLATE + 11)
        check_newest(checkpoints, 11)
    assert names(folder) == ["10", "11", "run.json"]
    capfd.readouterr()  # Orbax prints the traceback, too


def test_an_artifact_on_a_full_disk_leaves_the_old_one(tmp_path, full_disk):
    save_artifact(tmp_path / "model", {"a": np.zeros(100)})
    with pytest.raises(OSError, match="File too large"):
        save_artifact(tmp_path / "model", {"a": np.zeros(100_000)})
    assert load_artifact(tmp_path / "model").trees["a"].shape == (100,)
    assert names(tmp_path) == ["model"]


def test_a_clock_that_jumps_changes_nothing(folder, monkeypatch):
    now = time.time()
    for step, jump in ((11, -1e8), (12, 1e8), (13, -2e8)):
        with monkeypatch.context() as patch, open_again(folder) as checkpoints:
            patch.setattr(time, "time", lambda jump=jump: now + jump)
            checkpoints.save(step, TEMPLATE + step)
            check_newest(checkpoints, step)
    for path in folder.iterdir():
        os.utime(path, (0, 0) if path.name == "13" else None)
    with open_again(folder) as checkpoints:
        check_newest(checkpoints, 13)
    assert names(folder) == ["12", "13", "run.json"]


@pytest.fixture
def of_another_user(folder):
    """The folder where this process may only read; as root it becomes another user."""
    place = pathlib.Path(tempfile.mkdtemp())
    shutil.copytree(folder, place / "states")
    save_artifact(place / "states" / "model", {"a": np.zeros(3)})
    for path in [place, *place.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    yield place / "states"
    os.seteuid(user)
    for path in [place, *(path for path in place.rglob("*") if path.is_dir())]:
        path.chmod(0o755)
    shutil.rmtree(place)


def test_a_read_only_folder_is_restored_from_and_not_written_to(of_another_user):
    before = names(of_another_user)
    with open_again(of_another_user) as checkpoints:
        check_newest(checkpoints, 10)
        with pytest.raises(RuntimeError, match="is read-only, or another"):
            checkpoints.save(11, TEMPLATE)
    assert load_artifact(of_another_user / "model").trees["a"].shape == (3,)
    with pytest.raises(PermissionError, match=r"Permission denied.*states"):
        save_artifact(of_another_user / "model", {"a": np.zeros(3)})
    assert names(of_another_user) == before
