"""Committed results beside the published figures, as Markdown and as one self-contained HTML page.

Reads result files only; nothing is trained here. Sections of experiments without results are left
out.
"""

import argparse
from pathlib import Path

from benchmarks.machinery.console import console
from benchmarks.machinery.document import Section, to_html, to_markdown
from benchmarks.machinery.store import DEFAULT_RESULTS, Store, write_atomically
from benchmarks.registry import BENCHMARKS

TITLE = "fisher8_jax: the published experiments, reproduced"


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
    reports = (benchmark.load_report() for benchmark in BENCHMARKS.values())
    sections = (report.section(store) for report in reports if report is not None)
    return [section for section in sections if section is not None]
