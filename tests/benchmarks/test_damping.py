"""The benchmark of the damping, in two steps."""

import argparse

import pytest

from benchmarks.experiments.damping import command
from benchmarks.machinery.store import Store


@pytest.mark.slow
def test_it_trains_stores_and_shows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "WIDTH", 3)
    monkeypatch.setattr(command, "FIXED", (0.1,))
    monkeypatch.setattr(command, "PROBLEMS", {"wave": None})
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["--steps", "2", "--seeds", "2", "--results", str(tmp_path)])
    assert command.run(args) == 0
    assert "wave" in capsys.readouterr().out
    rows = Store(tmp_path).read(command.CELL)["rows"]
    assert [row["damping"] for row in rows] == [0.1, "rule"]
    assert rows[0]["last_damping"] != rows[1]["last_damping"]
