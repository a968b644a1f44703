"""Settings of every test: strict JAX, deterministic hypothesis, and prose whose code must run.

Tests run with 64-bit floats, so that float32 and narrower are asked for by name. Docstrings and
documentation pages run with JAX's own default of 32 bits, as a reader will run them.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
import os
import pathlib
import sys
import threading

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
# Most of a test run is XLA compiling the same small programs. They are kept beside the sources, for
# both processes of a run, the programs that tests start, and the next run. Variables, not
# `jax.config`, so that child processes inherit them.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(__file__).parent / ".jax_cache")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
# Nearly all programs run for milliseconds, so quick compilation counts, not quick programs. The
# fusion emitters alone take a third of the time and half of the memory; XLA ends the process at a
# flag that it does not know, and 0.12 no longer knows this one. `make test-optimized` runs
# everything as users compile it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
# Two processes share the cores already; LAPACK's threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import jax
import pytest
from jax._src.interpreters import mlir as jax_mlir
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)  # also for arrays made while test files are imported

hypothesis.settings.register_profile(
    "deterministic", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("deterministic")

# Programs that the build of the site runs; importing one for its doctests would run it again. And
# those that made the references or run other packages' suites: no doctests, but other requirements.
collect_ignore_glob = [
    "docs/gallery/*",
    "docs/gallery_source/*",
    "tests/families/reference/*",
    "tests/suites/*_checks.py",
]

# All code blocks of one page share a namespace and run from top to bottom.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["*.md"], fixtures=["strict_jax"]
).pytest()


def pytest_collection_finish() -> None:
    """Takes what was collected out of the search for garbage.

    Some thousand tests and the packages that they import live to the end. Tracing makes and drops
    so many small objects that Python would walk through all of them again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# JAX makes an MLIR context for every program: 4 of the 9 ms that a small one takes when it comes
# from the cache, and 1.2 of the 1.3 MB that it keeps. Here the programs of a thread share one. The
# function is not public: where a version of JAX lacks it, tests only take longer.
_contexts = threading.local()
_make_context = getattr(jax_mlir, "make_ir_context", None)


def _shared_context() -> object:
    if getattr(_contexts, "current", None) is None:
        _contexts.current = _make_context()
    return _contexts.current


if _make_context is not None:
    jax_mlir.make_ir_context = _shared_context


_MEMORY = pathlib.Path("/proc/self/statm")  # Linux only; elsewhere programs are kept
_MUCH_MEMORY = 1.3e9  # bytes; collecting takes half of it, and one test may take as much again


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Closes figures between files, and forgets compiled programs before they fill the memory.

    A run compiles some ten thousand. A forgotten one that is needed again comes from the cache on
    disk. Matplotlib warns of more than 20 open figures.
    """
    is_last_of_file = nextitem is None or nextitem.path != item.path
    if is_last_of_file and "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    if _MEMORY.exists() and _resident_bytes() > _MUCH_MEMORY:
        _forget_programs()


def _resident_bytes() -> int:
    return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _forget_programs() -> None:
    jax.clear_caches()
    _contexts.current = None  # it holds the constants of all programs
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library other than GNU's
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(autouse=True)
def strict_jax(request: pytest.FixtureRequest) -> None:
    """64-bit floats and no silent rank promotion in tests, JAX's defaults in prose."""
    is_test = isinstance(request.node, pytest.Function)
    jax.config.update("jax_enable_x64", is_test)
    jax.config.update("jax_numpy_rank_promotion", "raise" if is_test else "allow")
