"""Damping of the natural gradient: fixed, by a rule, and with a size for every parameter.

`levenberg` puts fixed dampings beside the Levenberg-Marquardt rule on two made-up regressions.
`scales` puts the identity beside factored second moments on four UCI sets, at equal processor time.
`kept` puts rows of earlier batches into the curvature.
"""

import argparse

from benchmarks.experiments.curvature.plan import SELECTION
from benchmarks.experiments.damping import kept, levenberg, scales_report
from benchmarks.experiments.uci.data import default_cache_dir, prepare
from benchmarks.machinery.command import check_names
from benchmarks.machinery.console import progress
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import Section, print_section
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

EXPERIMENTS = ("levenberg", "scales", "kept")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of experiments, their size, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--experiments", nargs="+", default=["all"], help=", ".join(EXPERIMENTS))
    parser.add_argument("--steps", type=int, default=500, help="of `levenberg`")
    parser.add_argument("--seeds", type=int, default=10, help="of `levenberg`")
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    """Measures what was asked for and prints the tables."""
    chosen = check_names("experiments", args.experiments, EXPERIMENTS)
    if "levenberg" in chosen:
        levenberg.run(args.steps, args.seeds, args.results)
    store = Store(args.results)
    if "scales" in chosen:
        _run_scales(args, store)
    if "kept" in chosen and store.read(kept.CELL, kept.SPEC) is None:
        paths = prepare([*SELECTION, *kept.OTHERS], args.data_dir, default_cache_dir())
        origin = provenance("python -m benchmarks damping --experiments kept")
        store.write(kept.CELL, spec=kept.SPEC, result=kept.measure(paths), provenance=origin)
    return print_section(section(store))


def _run_scales(args: argparse.Namespace, store: Store) -> None:
    from benchmarks.experiments.damping import scales

    paths = prepare(list(SELECTION), args.data_dir, default_cache_dir())
    command = "python -m benchmarks damping --experiments scales"
    with progress("damping", len(scales.NETWORKS)) as advance:
        for name in scales.NETWORKS:
            cell, spec = f"damping/scales-{name}", scales.spec_of(name)
            if store.read(cell, spec) is None:
                result = scales.measure(name, paths)
                store.write(cell, spec=spec, result=result, provenance=provenance(command))
            advance(1)


def section(store: Store) -> Section | None:
    """What is stored; None if there is nothing."""
    blocks = [*levenberg.blocks(store), *scales_report.blocks(store), *kept.blocks(store)]
    return Section("Damping of the natural gradient", blocks) if blocks else None
