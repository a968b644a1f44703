"""Files that are whole or absent, whatever kills the writer.

A file is written under a temporary name beside its place and renamed when it is complete. The
writer holds a lock on its temporary file, which the kernel releases when the process ends, also by
`kill -9`. So a temporary file that can be locked has no owner any more: the next writer in that
folder removes it, and never one of a living process.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there, and nothing is cleaned up
    fcntl = None  # type: ignore[assignment]

_PREFIX, _SUFFIX = ".fisher8-", ".tmp"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    A reader sees the old file or the new one. An existing file keeps its permissions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_ownerless(path.parent)
    handle, temporary = _open_temporary(path.parent)
    try:
        with os.fdopen(handle, "wb") as file:  # and with it the lock, until after the rename
            yield file
            file.flush()
            os.fsync(handle)
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            if fcntl is not None:
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)  # Windows renames no open file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_ownerless(folder: Path) -> list[Path]:
    """Removes the temporary files in `folder` whose writers are gone; returns their paths."""
    removed = []
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process was faster
            if _is_own_file(path) and _remove_if_free(path):
                removed.append(path)
    return removed


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a whole file or nothing, also when the process or the machine stops half-way.

    A reader sees the old file or the new one. What killed writers left in the folder is removed.

    Args:
        path: replaced in one step; its folder is made if there is none.
        content: all of it.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.artifacts import write_atomically
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.json"
        >>> write_atomically(path, b"{}")
        >>> path.read_bytes()
        b'{}'
    """
    with replacing(path) as file:
        file.write(content)


def lock(handle: int) -> bool:
    """Takes the lock of an open file or folder without waiting; False if another one holds it.

    The lock ends with `handle`, at the latest with the process.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: go on as if alone, and never clean up
        return True
    return True


def _open_temporary(folder: Path) -> tuple[int, Path]:
    """A new file of this process's own, locked."""
    while True:
        path = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        # 0o666 less the umask, as for any new file.
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        # Between the two lines another process may have found the file free and removed it.
        if lock(handle) and _is_at(handle, path):
            return handle, path
        os.close(handle)


def _is_own_file(path: Path) -> bool:
    """A regular file of this user: in a shared folder anybody may choose a name."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and (fcntl is None or status.st_uid == os.geteuid())


def _remove_if_free(path: Path) -> bool:
    if fcntl is None:
        return False
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(handle, path):
            return False
        path.unlink()
        return True
    finally:
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """True if `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """The rename itself on disk, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
