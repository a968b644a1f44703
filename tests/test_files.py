"""Files are whole or absent: failures, races with a cleaner, writers killed at any moment."""

import os
import random
import stat
import subprocess
import sys
import threading
import time

import pytest

from fisher8_jax._internal import files
from fisher8_jax._internal.files import lock, remove_abandoned, replacing, write_atomically

# The module alone, without the package and with it JAX: a writer that starts in no time.
WRITER = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
path = pathlib.Path(sys.argv[2])
for n in range(int(sys.argv[3])):
    files.write_atomically(path, bytes([n % 251]) * 300_000)
    if n == 0:
        print("began", flush=True)
"""


def start_writer(path, writes=10**9):
    command = [sys.executable, "-S", "-c", WRITER, files.__file__, str(path), str(writes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def check_whole(path):
    content = path.read_bytes()
    assert content == content[:1] * 300_000


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=str)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    write_atomically(tmp_path / "a", b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o600)
    write_atomically(tmp_path / "new", b"secret")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_abandoned_files_go_and_those_of_the_living_stay(tmp_path):
    (tmp_path / "mine.tmp").write_bytes(b"not of this package")
    (tmp_path / ".fisher8-link.tmp").symlink_to(tmp_path / "mine.tmp")
    os.mkfifo(tmp_path / ".fisher8-pipe.tmp")  # opening one must not wait for ever
    kept = [".fisher8-link.tmp", ".fisher8-pipe.tmp", "mine.tmp"]
    with replacing(tmp_path / "a") as file:
        (tmp_path / ".fisher8-dead.tmp").write_bytes(b"half")
        remove_abandoned(tmp_path)
        assert not (tmp_path / ".fisher8-dead.tmp").exists()
        file.write(b"whole")
    assert names(tmp_path) == sorted([*kept, "a"])
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_file_taken_between_making_and_locking_is_made_again(tmp_path, monkeypatch):
    calls = []

    def lock_after_a_cleaner(handle):
        if not calls:
            remove_abandoned(tmp_path)
        calls.append(names(tmp_path))
        return lock(handle)

    monkeypatch.setattr(files, "lock", lock_after_a_cleaner)
    write_atomically(tmp_path / "a", b"whole")
    assert [len(left) for left in calls] == [0, 1]
    assert names(tmp_path) == ["a"]


def test_a_cleaner_in_a_tight_loop_never_takes_a_living_file(tmp_path):
    over = threading.Event()

    def clean():
        while not over.is_set():
            remove_abandoned(tmp_path)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for n in range(100):
            write_atomically(tmp_path / f"{n % 3}", b"%d" % n)
    finally:
        over.set()
        cleaner.join()
    assert names(tmp_path) == ["0", "1", "2"]
    assert (tmp_path / "2").read_bytes() == b"98"


def test_file_systems_without_locks_are_written_to_and_never_cleaned(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(95, "operation not supported")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    (tmp_path / ".fisher8-unknown.tmp").write_bytes(b"")
    write_atomically(tmp_path / "a", b"whole")
    assert names(tmp_path) == [".fisher8-unknown.tmp", "a"]


def test_without_fcntl_as_on_windows_files_are_closed_before_the_rename(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    opened, replace = [], os.replace
    make = files._open_temporary
    monkeypatch.setattr(files, "_open_temporary", lambda f: opened.append(make(f)) or opened[-1])

    def replace_closed(source, target):
        assert opened[-1].closed  # Windows renames no open file
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_closed)
    write_atomically(tmp_path / "a", b"whole")
    assert names(tmp_path) == ["a"]
    handle = files.lock_folder(tmp_path)
    assert not stat.S_ISDIR(os.fstat(handle).st_mode)  # Windows opens no folders
    os.close(handle)


def test_killed_at_twenty_moments_the_file_is_whole_and_nothing_stays(tmp_path):
    path, moments = tmp_path / "model", random.Random(0)
    for _ in range(20):
        process = start_writer(path)
        try:
            assert process.stdout.readline() == b"began\n"
            time.sleep(moments.uniform(0, 0.02))
        finally:
            process.kill()
            process.communicate(timeout=60)
        check_whole(path)
        assert len(names(tmp_path)) <= 2  # what one writer left, the next one removed
    write_atomically(path, b"last")
    assert names(tmp_path) == ["model"]


def test_two_processes_that_write_the_same_file_leave_a_whole_one(tmp_path):
    path = tmp_path / "model"
    processes = [start_writer(path, writes=100) for _ in range(2)]
    try:
        assert [process.stdout.readline() for process in processes] == [b"began\n"] * 2
        while any(process.poll() is None for process in processes):
            check_whole(path)
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    assert names(tmp_path) == ["model"]
