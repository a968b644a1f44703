"""Running what is missing: what is skipped, what is said after Ctrl-C, and what fits a terminal."""

import argparse
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from benchmarks import registry
from benchmarks.__main__ import main
from benchmarks.machinery import command, console, document
from benchmarks.machinery.command import InterruptedRunError, UsageError, check_names, run_missing
from benchmarks.machinery.document import Paragraph, Table, print_blocks
from benchmarks.machinery.report import collect
from benchmarks.machinery.store import Store


class Job(NamedTuple):
    """Writes two cells; stops in the middle of number 2."""

    number: int
    results: Path

    def cells(self):
        return {f"toy/{self.number}{letter}": {"number": self.number} for letter in "ab"}


def run_job(job, report):
    for name, spec in job.cells().items():
        if name == "toy/2b" and not (job.results / "go").exists():
            raise KeyboardInterrupt
        Store(job.results).write(name, spec=spec, result={}, provenance={})
        report(0.5)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Three jobs, and a function that runs them in this process."""
    monkeypatch.setattr(command.pkgutil, "resolve_name", lambda name: run_job)
    jobs = [Job(number, tmp_path) for number in (1, 2, 3)]
    args = argparse.Namespace(results=tmp_path, workers=1)
    return lambda: run_missing("toy.jobs:run_job", jobs, args, title="Toy", cells=Job.cells)


def test_ctrl_c_says_what_is_stored_and_the_same_command_goes_on(toy, tmp_path, capsys):
    with pytest.raises(InterruptedRunError) as stop:
        toy()
    message = f"Interrupted: 3 of 6 cells are stored below {tmp_path}; the same command goes on"
    assert str(stop.value).startswith(message)
    first = Store(tmp_path).path("toy/1a")
    written = first.stat().st_mtime_ns
    (tmp_path / "go").touch()
    toy()
    assert "3 cells in" in capsys.readouterr().out
    assert len(list(Store(tmp_path).cells("toy"))) == 6
    assert first.stat().st_mtime_ns == written
    toy()
    assert "All 6 cells are stored" in capsys.readouterr().out


class Interrupting:
    """A command module that is interrupted."""

    def __init__(self, stop):
        self.stop = stop

    def add_arguments(self, parser):
        pass

    def run(self, args):
        raise self.stop


@pytest.mark.parametrize(
    ("stop", "line"),
    [
        (InterruptedRunError("2 of 3 cells are stored"), "2 of 3 cells are stored"),
        (KeyboardInterrupt(), "Interrupted: nothing is stored; the same command starts again."),
    ],
)
def test_a_command_ends_with_one_line_after_ctrl_c(stop, line, monkeypatch, capsys):
    monkeypatch.setattr(registry.Benchmark, "load_command", lambda self: Interrupting(stop))
    assert main(["uci"]) == 130
    assert capsys.readouterr().err.strip() == line


def terminal(monkeypatch, width=80):
    """A terminal of the given width in place of the shared console."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, soft_wrap=True)
    for module in (console, document, command):
        monkeypatch.setattr(module, "console", screen)
    return screen.file


def test_the_bar_begins_with_what_is_stored_and_counts_cells(toy, tmp_path, monkeypatch):
    screen = terminal(monkeypatch)
    monkeypatch.setattr(console, "_COUNT_EVERY", 0.0)
    with pytest.raises(InterruptedRunError):
        toy()
    (tmp_path / "go").touch()
    screen.truncate(0)
    toy()
    counts = re.findall(r"(\d)/6 cells stored", screen.getvalue())
    assert counts[0] == "3"
    assert counts[-1] == "6"


def test_every_stored_table_is_readable_at_80_columns(monkeypatch):
    sections = collect(Store())
    assert len(sections) > 10
    for section in sections:
        screen = terminal(monkeypatch)
        print_blocks(section.blocks)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.getvalue().splitlines()]
        assert max(len(line) for line in lines) <= 80
        assert not any("…" in line for line in lines)
        words = {word for line in lines for word in line.split()}
        for table in section.blocks:
            if isinstance(table, Table):
                names = " ".join(table.header).replace("`", "")
                assert all(word in words for word in names.split())


def test_a_wide_table_repeats_its_first_column(monkeypatch):
    screen = terminal(monkeypatch, width=30)
    print_blocks(
        [Paragraph("`code`"), Table("Title", ["set", "a" * 12, "b" * 12], [["x", "1", "2"]])]
    )
    text = screen.getvalue()
    assert text.count("Title") == 1
    assert text.count("set") == 2
    assert "`" not in text


def test_unknown_names_are_named_with_the_known_ones():
    assert check_names("methods", ["all"], ("a", "b")) == ["a", "b"]
    with pytest.raises(UsageError, match=r"`--methods` has no 'c'\. There are: a, b"):
        check_names("methods", ["c"], ("a", "b"))
