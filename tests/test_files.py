"""Files are whole or absent: failures, races with a cleaner, and writers killed at any moment."""

import os
import random
import stat
import subprocess
import sys
import threading
import time

import pytest

from fisher8_jax._internal import files
from fisher8_jax._internal.files import lock, remove_ownerless, replacing, write_atomically

# The module alone, without the package and with it JAX: a writer that starts in no time.
WRITER = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
path = pathlib.Path(sys.argv[2])
for n in range(10**9):
    files.write_atomically(path, bytes([n % 251]) * 300_000)
    if n == 0:
        print("began", flush=True)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "cell.json"
    write_atomically(path, b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["cell.json"]
    assert path.read_bytes() == b"old"


def test_an_error_in_the_block_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "a", b"old")

    def interrupted():
        with replacing(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
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


def test_ownerless_files_go_and_those_of_the_living_stay(tmp_path):
    (tmp_path / "mine.tmp").write_bytes(b"not of this package")
    (tmp_path / ".fisher8-link.tmp").symlink_to(tmp_path / "mine.tmp")
    os.mkfifo(tmp_path / ".fisher8-pipe.tmp")  # opening one must not wait for ever
    with replacing(tmp_path / "a") as file:
        (tmp_path / ".fisher8-dead.tmp").write_bytes(b"half")
        assert [path.name for path in remove_ownerless(tmp_path)] == [".fisher8-dead.tmp"]
        file.write(b"whole")
    assert names(tmp_path) == [".fisher8-link.tmp", ".fisher8-pipe.tmp", "a", "mine.tmp"]
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_file_taken_between_making_and_locking_is_made_again(tmp_path, monkeypatch):
    taken = []

    def lock_after_a_cleaner(handle):
        if not taken:
            taken.extend(remove_ownerless(tmp_path))
        return lock(handle)

    monkeypatch.setattr(files, "lock", lock_after_a_cleaner)
    write_atomically(tmp_path / "a", b"whole")
    assert len(taken) == 1
    assert names(tmp_path) == ["a"]


def test_a_cleaner_in_a_tight_loop_never_takes_a_living_file(tmp_path):
    over = threading.Event()

    def clean():
        while not over.is_set():
            remove_ownerless(tmp_path)

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


def test_killed_at_twenty_moments_the_file_is_whole_and_nothing_stays(tmp_path):
    path, moments = tmp_path / "model", random.Random(0)
    for _ in range(20):
        command = [sys.executable, "-S", "-c", WRITER, files.__file__, str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"began\n"
            time.sleep(moments.uniform(0, 0.02))
        finally:
            process.kill()
            process.communicate(timeout=60)
        content = path.read_bytes()
        assert content == content[:1] * 300_000
        assert len(names(tmp_path)) <= 2  # what one writer left, the next one removed
    write_atomically(path, b"last")
    assert names(tmp_path) == ["model"]
