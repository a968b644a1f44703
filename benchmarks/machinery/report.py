"""Committed results beside the published figures, as Markdown and as one self-contained HTML page.

Reads result files only; nothing is trained here. Sections of experiments without results are left
out.
"""

import argparse
import importlib
import importlib.util
from pathlib import Path

from benchmarks.machinery.console import console
from benchmarks.machinery.document import Section, to_html, to_markdown
from benchmarks.machinery.store import DEFAULT_RESULTS, Store, write_atomically

TITLE = "fisher8_jax: the published experiments, reproduced"
# Each has `section(store) -> Section | None`.
SECTIONS = (
    "benchmarks.experiments.uci.report",
    "benchmarks.experiments.sinusoid.report",
    "benchmarks.costs.speed_report",
    "benchmarks.experiments.radius.report",
    "benchmarks.experiments.rotated_mnist.report",
    "benchmarks.experiments.weak_lensing.report",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where results are and where the report goes."""
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--output", type=Path, default=Path("runs/report"))
    parser.add_argument(
        "--docs", type=Path, default=None, help="also write the tables to this file"
    )


def run(args: argparse.Namespace) -> int:
    """Writes `report.md` with its pictures and `report.html`."""
    store = Store(args.results)
    sections = collect(store)
    if not sections:
        console.print(f"[red]There are no results below {args.results}.[/red] Run an experiment.")
        return 1
    for path in store.damaged("."):
        console.print(f"{path} is damaged and left out. Run its experiment again.")
    pictures = args.output / "pictures"
    write_atomically(args.output / "report.md", to_markdown(TITLE, sections, pictures).encode())
    write_atomically(args.output / "report.html", to_html(TITLE, sections).encode())
    if args.docs:
        write_atomically(args.docs, to_markdown("", sections, None).encode())
    console.print(f"{args.output / 'report.md'} and {args.output / 'report.html'} are written.")
    return 0


def collect(store: Store) -> list[Section]:
    """The sections that have results."""
    found = (name for name in SECTIONS if importlib.util.find_spec(name) is not None)
    sections = (importlib.import_module(name).section(store) for name in found)
    return [section for section in sections if section is not None]
