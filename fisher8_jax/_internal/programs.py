"""Compiled programs that outlive the process: JAX's persistent cache in a folder of our own.

Most of a small fit's time is compilation. JAX can keep compiled programs in a folder, safely for
several processes at once. Here it does so while a function of ours runs, unless the user has
chosen a folder, or turned the cache off.
"""

import contextlib
import functools
import hashlib
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

import jax
from jax.experimental.compilation_cache import compilation_cache

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

VARIABLE = "FISHER8_PROGRAM_CACHE"  # another folder; empty or 0 for no cache
_lock = threading.Lock()
_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keeps_programs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Makes programs that `function` compiles stay for the next process."""

    @functools.wraps(function)
    def kept(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with _cache():
            return function(*args, **kwargs)

    return kept


@contextlib.contextmanager
def _cache() -> Iterator[None]:
    folder = _folder()
    with _lock:  # of several threads, the first one sets and restores
        is_ours = folder is not None and _read("jax_compilation_cache_dir") is None
        settings = _SETTINGS | {"jax_compilation_cache_dir": str(folder)}
        before = {name: _read(name) for name in settings}
        if is_ours:
            _set(settings)
    try:
        yield
    finally:
        if is_ours:
            with _lock:
                _set(before)


def _read(name: str) -> object:
    return getattr(jax.config, name)


def _set(settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX reads the folder once


def _folder() -> Path | None:
    """The folder for this processor, made if need be; None where there is to be no cache."""
    chosen = os.environ.get(VARIABLE)
    if chosen in ("", "0") or not _read("jax_enable_compilation_cache"):
        return None
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen or Path(caches) / "fisher8_jax") / _processor()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None  # a home that cannot be written to
    return folder


@functools.cache
def _processor() -> str:
    """A name for this processor's instructions: programs for another one may not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:12]}"
