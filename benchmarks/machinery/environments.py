"""Programs of other authors, each in an environment of its own. Free of JAX and of NumPy.

An environment is made from the package registry that pip is set up for and kept by its
requirements. Pip's own settings decide between builds of a package: `PIP_CONSTRAINT` names a file
of versions, for example a PyTorch without CUDA.
"""

import hashlib
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class NotInstalledError(RuntimeError):
    """A program could not be installed."""


class Ended(NamedTuple):
    """How a program ended: its exit code, negative for a signal, and what it wrote as errors."""

    code: int
    errors: str


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def default_environments() -> Path:
    """The folder of all environments, beside other files that can be made again."""
    from benchmarks.machinery.data import cache_dir

    return cache_dir() / "environments"


def environment(requirements: Sequence[str], cache: Path, *, library: bool = True) -> Path:
    """The interpreter of an environment with these packages.

    The folder is named by a hash of the requirements and counts once it is whole.

    Args:
        requirements: what pip is asked for.
        cache: the folder that holds all environments.
        library: with this library, too. It comes last and without its own requirements: a program
            that pins an older JAX keeps it.
    """
    text = "\n".join([sys.version, *requirements, *([] if library else ["nothing else"])])
    folder = cache / hashlib.sha256(text.encode()).hexdigest()[:16]
    done, python = folder / "installed", python_of(folder)
    if not done.exists():
        venv.create(folder, with_pip=True, clear=folder.exists())
        _install(python, requirements, requirements[0])
        if library:
            _install(python, ["--no-deps", "--editable", str(ROOT)], "fisher8_jax")
        done.write_text(text)
    return python


def run_module(
    python: Path, module: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None
) -> Ended:
    """Runs a module of this repository in another environment, which ends when this process does.

    The module calls `leave_with_parent` first.

    Args:
        python: the interpreter.
        module: as after `python -m`.
        arguments: of its command line.
        settings: environment variables beside those of this process.
    """
    command = [str(python), "-m", module, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(settings or {})}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=variables,
    ) as process:
        assert process.stderr is not None
        try:
            errors = process.stderr.read()  # to the end of the program
            process.wait()
        except BaseException:
            process.kill()
            raise
    return Ended(process.returncode, errors.strip())


def leave_with_parent() -> None:
    """Ends this process when the one that started it is gone, however it went."""
    threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 1):
        pass  # nothing is sent; the pipe ends with the parent
    os._exit(1)


def _install(python: Path, arguments: Sequence[str], name: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise NotInstalledError(
            f"{name!r} could not be installed from the package registry: {last[0]} The programs of "
            "this experiment are installed when it runs, so it needs a network or a local index "
            "that pip knows; `--table` prints what is stored."
        )
