"""Computes random stored cells again and compares what comes out with what is stored.

Each cell is computed by the command of its provenance, in a folder where it alone is missing, and
must come out the same to the last bit; measured times are left out of the comparison. Cells whose
number of steps follows from times that they measure are never drawn. A cell that takes longer than
`--seconds` is skipped, and said to be.
"""

import argparse
import fnmatch
import json
import math
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machinery.command import UsageError
from benchmarks.machinery.console import console
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import Table, print_blocks
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.registry import BENCHMARKS

_PREFIX = ["python", "-m", "benchmarks"]
# Costs, damping at the processor time that it measures, and K-FAC in an environment of its own.
_OF_TIMES = ("costs*", "scales-*", "*-kfac")


class Outcome(NamedTuple):
    """What became of one cell."""

    name: str
    text: str
    seconds: float
    is_same: bool | None  # None: it was skipped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many cells, which, and for how long."""
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="decides which cells are drawn")
    parser.add_argument("--names", nargs="+", default=None, help="these cells, none at random")
    parser.add_argument("--experiments", nargs="+", default=None, help="default: all that repeat")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each cell at most")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    add_data_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Prints a line per cell; the exit code is 1 if one differs."""
    drawn = args.names or draw(Store(args.results), args.cells, args.seed, args.experiments)
    if not drawn:
        raise UsageError(f"There is no cell to repeat below {args.results}.")
    outcomes = []
    for name in drawn:
        outcomes.append(repeat(name, args))
        console.print(f"{name}: {outcomes[-1].text}")
    same = sum(outcome.is_same is True for outcome in outcomes)
    skipped = sum(outcome.is_same is None for outcome in outcomes)
    rows = [[one.name, one.text, f"{one.seconds:.0f}"] for one in outcomes]
    print_blocks([Table("Cells computed again", ["cell", "outcome", "seconds"], rows)])
    console.print(f"{same} of {len(outcomes)} came out the same to the bit, {skipped} skipped.")
    return int(any(outcome.is_same is False for outcome in outcomes))


def draw(
    store: Store, number: int, seed: int, experiments: Sequence[str] | None = None
) -> list[str]:
    """Names of random cells, one of each experiment in turn, so that few cells cover many."""
    rng = random.Random(seed)
    stacks = {}
    for experiment in _chosen(experiments):
        names = sorted(_repeatable(store, experiment))
        rng.shuffle(names)
        stacks[experiment] = names
    order = [name for name, cells in stacks.items() if cells]
    rng.shuffle(order)
    drawn: list[str] = []
    while order and len(drawn) < number:
        for experiment in list(order):
            if len(drawn) < number:
                drawn.append(stacks[experiment].pop())
            if not stacks[experiment]:
                order.remove(experiment)
    return drawn


def _chosen(experiments: Sequence[str] | None) -> list[str]:
    known = [name for name, benchmark in BENCHMARKS.items() if benchmark.repeats]
    unknown = [name for name in experiments or () if name not in known]
    if unknown:
        raise UsageError(
            f"`--experiments` has no {unknown[0]!r} that repeats. There are: {', '.join(known)}."
        )
    return list(experiments or known)


def _repeatable(store: Store, experiment: str) -> Iterator[str]:
    for path in (store.root / experiment).glob("**/*.json"):
        body = store.load(path)
        measures_times = any(fnmatch.fnmatch(path.stem, pattern) for pattern in _OF_TIMES)
        if body is not None and _words(body)[:1] == [experiment] and not measures_times:
            yield path.relative_to(store.root).with_suffix("").as_posix()


def _words(body: dict[str, Any]) -> list[str]:
    """What follows `python -m benchmarks` in the command of a cell; [] if that is not it."""
    words = shlex.split(body["provenance"].get("command", ""))
    return words[len(_PREFIX) :] if words[: len(_PREFIX)] == _PREFIX else []


def repeat(name: str, args: argparse.Namespace) -> Outcome:
    """Computes one cell again, in a copy of its experiment's folder without it."""
    body = Store(args.results).load(Store(args.results).path(name))
    if body is None:
        raise UsageError(f"The cell {name!r} is missing or damaged.")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        experiment = name.split("/")[0]
        shutil.copytree(args.results / experiment, store.root / experiment)
        store.path(name).unlink()
        text, is_same = _run_again(name, body, store, args)
    return Outcome(name, text, time.monotonic() - began, is_same)


def _run_again(
    name: str, body: dict[str, Any], store: Store, args: argparse.Namespace
) -> tuple[str, bool | None]:
    command = [sys.executable, "-m", "benchmarks", *_words(body), *_options(body, store, args)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.seconds)
    except subprocess.TimeoutExpired:
        return f"skipped: more than {args.seconds:g} s", None
    found = store.load(store.path(name))
    if found is None:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        return f"not written (exit code {done.returncode}): {last[0]}", False
    if found["spec"] != body["spec"]:
        return "its spec has changed", False
    difference = compare(body["result"], found["result"])
    return ("the same", True) if difference is None else (f"differs: {difference}", False)


def _options(body: dict[str, Any], store: Store, args: argparse.Namespace) -> list[str]:
    """Folders and workers, as far as the cell's command takes them."""
    parser = argparse.ArgumentParser(add_help=False)
    BENCHMARKS[_words(body)[0]].load_command().add_arguments(parser)
    known = parser._option_string_actions
    options = {"--results": store.root, "--workers": args.workers, "--data-dir": args.data_dir}
    pairs = [(key, str(value)) for key, value in options.items() if key in known and value]
    return [word for pair in pairs for word in pair]


def compare(stored: Any, found: Any) -> str | None:
    """Where two results differ most, relative to the stored number; None if they are the same."""
    before, after = _without_times(stored), _without_times(found)
    if before == after:
        return None
    if before.keys() != after.keys():
        key = sorted(before.keys() ^ after.keys())[0]
        return f"`{key}` is in one of them only"
    changed = [key for key in before if before[key] != after[key]]
    key = max(changed, key=lambda key: _distance(before[key], after[key]))
    number = f"{len(changed)} of {len(before)} values"
    return f"{number}, most `{key}`: {before[key]!r} stored, {after[key]!r} now"


def _distance(a: Any, b: Any) -> float:
    if not all(isinstance(value, int | float) for value in (a, b)):
        return math.inf
    return abs(a - b) / max(abs(a), 1e-300)


def _without_times(result: Any) -> dict[str, Any]:
    """All values but times and what describes the machine and its load."""
    words = ("second", "machine/")
    return {k: v for k, v in _flat(result).items() if not any(word in k for word in words)}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Every number of a result by its path."""
    if isinstance(value, dict):
        items = [(f"{prefix}/{key}" if prefix else key, item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{prefix}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {prefix: value}
    if not items:
        return {prefix: json.dumps(value)}
    return {path: leaf for key, item in items for path, leaf in _flat(item, key).items()}
