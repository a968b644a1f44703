"""Cells computed again: which are drawn, what the comparison sees, and what is skipped."""

import argparse
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks.machinery import repeat
from benchmarks.machinery.command import UsageError
from benchmarks.machinery.store import Store

RESULT = {"rmse": [1.0, 2.0], "seconds": 3.0, "machine": {"load": 1.0}}


@pytest.fixture
def store(tmp_path):
    """Two cells of the UCI tables, one of the doctor, and five that cannot be repeated."""
    store = Store(tmp_path)
    commands = {
        "uci/a": "python -m benchmarks uci --datasets yacht",
        "uci/b": "python -m benchmarks uci --datasets wine",
        "doctor/a": "python -m benchmarks doctor",
        "uci/of-another-program": "python -m tests.attacks",
        "curvature/costs": "python -m benchmarks curvature --experiments costs",
        "damping/scales-silu": "python -m benchmarks damping --experiments scales",
        "comparison/digits-kfac": "python -m benchmarks comparison --methods kfac",
        "overhead/cpu": "python -m benchmarks overhead",
    }
    for name, command in commands.items():
        store.write(name, spec={"name": name}, result=RESULT, provenance={"command": command})
    return store


def arguments(store, *words):
    parser = argparse.ArgumentParser()
    repeat.add_arguments(parser)
    return parser.parse_args(["--results", str(store.root), *words])


def computing(monkeypatch, result, spec=None):
    """Instead of a program: writes the missing cell of the folder that it is given."""
    calls = []

    def run(command, **options):
        calls.append(command)
        folder = command[command.index("--results") + 1]
        name = "uci/b" if "wine" in command else "uci/a" if "yacht" in command else "doctor/a"
        assert not Store(folder).path(name).exists()
        if result is not None:
            given = spec or {"name": name}
            Store(folder).write(name, spec=given, result=result, provenance={})
        return SimpleNamespace(returncode=1, stderr="no such data\n", stdout="")

    monkeypatch.setattr(repeat.subprocess, "run", run)
    return calls


def test_few_cells_cover_many_experiments(store):
    drawn = repeat.draw(store, 2, seed=0)
    assert {name.split("/")[0] for name in drawn} == {"uci", "doctor"}
    assert sorted(repeat.draw(store, 9, seed=0)) == ["doctor/a", "uci/a", "uci/b"]
    assert repeat.draw(store, 9, seed=0, experiments=["doctor"]) == ["doctor/a"]
    with pytest.raises(UsageError, match="no 'overhead' that repeats"):
        repeat.draw(store, 9, seed=0, experiments=["overhead"])


def test_equal_results_pass_whatever_the_times(store, monkeypatch, capsys):
    calls = computing(monkeypatch, RESULT | {"seconds": 99.0, "machine": {"load": 9.0}})
    assert repeat.run(arguments(store, "--workers", "3")) == 0
    assert "3 of 3 came out the same to the bit, 0 skipped" in capsys.readouterr().out
    by_name = {command[3]: command for command in calls}
    assert by_name["uci"][-2:] == ["--workers", "3"]


def test_the_last_bit_counts(store, monkeypatch, capsys):
    computing(monkeypatch, RESULT | {"rmse": [1.0, 2.0000000000000004]})
    assert repeat.run(arguments(store)) == 1
    text = repeat.repeat("uci/a", arguments(store)).text
    assert text == ("differs: 1 of 2 values, most `rmse[1]`: 2.0 stored, 2.0000000000000004 now")


@pytest.mark.parametrize(
    ("result", "spec", "text"),
    [
        (None, None, "not written (exit code 1): no such data"),
        (RESULT, {"name": "another"}, "its spec has changed"),
        ({"rmse": [1.0]}, None, "differs: `rmse[1]` is in one of them only"),
        ({"rmse": [None, 2.0]}, None, "differs: 1 of 2 values, most `rmse[0]`: 1.0 stored, None"),
    ],
)
def test_what_else_can_differ(store, monkeypatch, result, spec, text):
    computing(monkeypatch, result, spec)
    outcome = repeat.repeat("uci/a", arguments(store))
    assert outcome.text.startswith(text)
    assert outcome.is_same is False


def test_a_long_cell_is_skipped_and_said_to_be(store, monkeypatch, capsys):
    def run(command, *, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(repeat.subprocess, "run", run)
    assert repeat.run(arguments(store, "--seconds", "7")) == 0
    printed = capsys.readouterr().out
    assert "skipped: more than 7 s" in printed
    assert "0 of 3 came out the same to the bit, 3 skipped" in printed
