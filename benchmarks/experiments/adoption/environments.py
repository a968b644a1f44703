"""An environment for each program, made from the package registry and kept by its requirements."""

import hashlib
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments.adoption.plan import ROOT


class NotInstalledError(RuntimeError):
    """A program could not be installed."""


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def environment(requirements: Sequence[str], cache: Path) -> Path:
    """The interpreter of an environment with these packages and this library.

    The library comes last and without its own requirements: a program that pins an older JAX keeps
    it. The folder is named by a hash of the requirements and counts once it is whole.
    """
    text = "\n".join([sys.version, *requirements])
    folder = cache / hashlib.sha256(text.encode()).hexdigest()[:16]
    done, python = folder / "installed", python_of(folder)
    if not done.exists():
        venv.create(folder, with_pip=True, clear=folder.exists())
        _install(python, requirements, requirements[0])
        _install(python, ["--no-deps", "--editable", str(ROOT)], "fisher8_jax")
        done.write_text(text)
    return python


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
