"""Processor seconds of the estimator with its default settings, from the first call on.

Some items begin without compiled programs: JAX's caches are cleared, and the persistent one is off.
The last two are whole processes, imports included, the second of which finds the programs that the
first one has kept. Seconds are those of all threads, so other programs on the machine disturb them
little.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Paragraph, Section, Table, print_section
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

CELL = "estimator_speed/cpu"
COLUMNS = 8


# What is timed, and whether it begins without compiled programs.
IS_COLD = {
    "first fit, 500 rows": True,
    "second fit, 430 rows": False,
    "first fit, 50,000 rows": True,
    "GridSearchCV, 4 settings, 3 folds, 500 rows": True,
    "predict_interval, 200,000 rows, after a first call": False,
}
# Run one after the other, beginning with an empty folder of kept programs.
IN_NEW_PROCESS = ("new process, fit, 300 rows", "the same again, programs kept")
_PROCESS = """
from benchmarks.costs.estimator_speed import make_data
from fisher8_jax.estimator import Fisher8Regressor
Fisher8Regressor(random_state=0, show_progress=False).fit(*make_data(300))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the result goes."""
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Measures all items, stores the seconds and prints them."""
    store = Store(args.results)
    if not args.table:
        seconds = measure() | measure_processes()
        result = {"seconds": seconds, "machine": machine()}
        origin = provenance("python -m benchmarks estimator_speed")
        store.write(CELL, spec={"columns": COLUMNS}, result=result, provenance=origin)
    return print_section(section(store))


def measure() -> dict[str, float]:
    """Processor seconds of every item."""
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    seconds, programs = {}, make_programs()
    with progress("Estimator", len(IS_COLD)) as advance:
        for title, is_cold in IS_COLD.items():
            if is_cold:
                jax.clear_caches()
            began = time.process_time()
            programs[title]()
            seconds[title] = time.process_time() - began
            advance(1)
    return seconds


def measure_processes() -> dict[str, float]:
    """Processor seconds of whole processes that share a folder of kept programs."""
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | {"FISHER8_PROGRAM_CACHE": folder}
        variables.pop("JAX_COMPILATION_CACHE_DIR", None)
        return {title: _seconds_of_process(variables) for title in IN_NEW_PROCESS}


def _seconds_of_process(variables: dict[str, str]) -> float:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began = spent()
    command = [sys.executable, "-W", "ignore", "-c", _PROCESS]
    subprocess.run(command, env=variables, check=True)
    return spent() - began


def make_data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise that grows along one column, a mean that bends along others."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(rows, COLUMNS))
    noise = 0.3 * np.exp(0.5 * inputs[:, 3]) * rng.normal(size=rows)
    return inputs, np.sin(inputs[:, 0]) + 0.5 * inputs[:, 1] * inputs[:, 2] + noise


def make_programs() -> dict[str, Callable[[], object]]:
    """What is run for every item; the second and the last use programs of what came before."""
    from sklearn.model_selection import GridSearchCV

    from fisher8_jax.estimator import SCORERS, Fisher8Regressor

    def model() -> Fisher8Regressor:
        return Fisher8Regressor(random_state=0, show_progress=False)

    def search() -> None:
        grid = {"validation_fraction": [0.05, 0.1, 0.15, 0.2]}
        found = GridSearchCV(model(), grid, scoring=SCORERS["neg_nll"], cv=3).fit(*make_data(500))
        fitted.append(found.best_estimator_)
        fitted[0].predict_interval(many[:512])

    fitted: list[Fisher8Regressor] = []
    many = make_data(200_000)[0]
    programs = (
        lambda: model().fit(*make_data(500)),
        lambda: model().fit(*make_data(430, seed=1)),
        lambda: model().fit(*make_data(50_000)),
        search,
        lambda: fitted[0].predict_interval(many),
    )
    return dict(zip(IS_COLD, programs, strict=True))


def section(store: Store) -> Section | None:
    """What was measured; None if nothing was."""
    (cell,) = list(store.cells("estimator_speed")) or (None,)
    if cell is None:
        return None
    load = cell["result"]["machine"]["load"]
    seconds = cell["result"]["seconds"]
    rows = [[title, f"{value:.2f}"] for title, value in seconds.items()]
    table = Table("Processor seconds of the estimator", ["what", "seconds"], rows)
    words = f"First fits compile from nothing. The machine's load was {load}."
    return Section("Speed of the estimator", [table, Paragraph(words)])
