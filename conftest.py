"""Settings of every test: strict JAX, deterministic hypothesis, and prose whose code must run.

Tests run with 64-bit floats, so that float32 and narrower are asked for by name. Docstrings and
documentation pages run with JAX's own default of 32 bits, as a reader will run them.
"""

import gc
import os
import pathlib
import sys

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

import hypothesis
import jax
import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)  # also for arrays made while test files are imported

hypothesis.settings.register_profile(
    "deterministic", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("deterministic")

# Programs that the build of the site runs; importing one for its doctests would run it again. And
# those that made the references: no doctests, but they need mpmath.
collect_ignore_glob = ["docs/gallery/*", "docs/gallery_source/*", "tests/families/reference/*"]

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


_MAPS = pathlib.Path("/proc/self/maps")
_MANY_MAPS = 25_000  # Linux allows a process 65,530; one file of tests makes some thousands


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between files: closes figures, and forgets programs before their memory mappings run out.

    Every compiled program holds a few. At the limit XLA aborts the process, which otherwise happens
    after some three thousand tests. Matplotlib warns of more than 20 open figures.
    """
    if nextitem is not None and nextitem.path == item.path:
        return
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def strict_jax(request: pytest.FixtureRequest) -> None:
    """64-bit floats and no silent rank promotion in tests, JAX's defaults in prose."""
    is_test = isinstance(request.node, pytest.Function)
    jax.config.update("jax_enable_x64", is_test)
    jax.config.update("jax_numpy_rank_promotion", "raise" if is_test else "allow")
