"""Files that are whole or absent, whatever ends the writer.

A file is written under a temporary name beside its place and renamed when it is complete. The
writer holds a lock on its temporary file, which the kernel releases when the process ends, also by
`kill -9`. So a temporary file that can be locked is abandoned, and the next writer in that folder
removes it. Neither clocks nor process numbers are asked. Windows has no such locks: there nothing
is locked, and abandoned files stay.
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
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    file = _open_temporary(path.parent)
    temporary = Path(file.name)
    try:
        with file:  # and with it the lock, until after the rename
            yield file
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):  # a replaced file keeps its permissions
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            if fcntl is not None:
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)  # Windows renames no open file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


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


def remove_abandoned(folder: Path) -> None:
    """Removes the temporary files in `folder` whose writers are gone."""
    for path in folder.glob(".fisher8-*.tmp") if fcntl is not None else ():
        with contextlib.suppress(OSError):  # not ours to open, or another process was faster
            status = path.lstat()  # in a shared folder anybody may choose such a name
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_at(file.fileno(), path):
                        path.unlink()


def lock(handle: int) -> bool:
    """Takes the lock of an open file or folder without waiting; False if another one holds it.

    The lock ends with `handle`, at the latest with the process.
    """
    with contextlib.suppress(OSError):  # a file system without locks: go on as if alone
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def lock_folder(folder: Path) -> int | None:
    """The handle that holds the lock of a folder; None if this process may not write to it."""
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        return None
    # Windows opens no folders, and has no locks that the handle could hold.
    handle = os.open(folder if fcntl is not None else os.devnull, os.O_RDONLY)
    if lock(handle):
        return handle
    os.close(handle)
    return None


def _open_temporary(folder: Path) -> BinaryIO:
    """A new file of this process's own, locked."""
    while True:
        path = folder / f".fisher8-{secrets.token_hex(8)}.tmp"
        file = path.open("xb")
        # Between the two lines another process may have found the file free and removed it.
        if lock(file.fileno()) and _is_at(file.fileno(), path):
            return file
        file.close()


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
