"""The benchmark of the damping, in two steps; how its tables choose what they show."""

import argparse

import pytest

from benchmarks.experiments.damping import command, levenberg, scales_report
from benchmarks.machinery.store import Store


@pytest.mark.slow
def test_it_trains_stores_and_shows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(levenberg, "WIDTH", 3)
    monkeypatch.setattr(levenberg, "FIXED", (0.1,))
    monkeypatch.setattr(levenberg, "PROBLEMS", {"wave": None})
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--experiments", "levenberg", "--steps", "2", "--seeds", "2"]
    assert command.run(parser.parse_args([*words, "--results", str(tmp_path)])) == 0
    assert "wave" in capsys.readouterr().out
    rows = Store(tmp_path).read(levenberg.CELL)["rows"]
    assert [row["damping"] for row in rows] == [0.1, "rule"]
    assert rows[0]["last_damping"] != rows[1]["last_damping"]


def make_row(form, damping, first, second):
    return {
        "budget": "short",
        "form": form,
        "momentum": 0.0,
        "damping": damping,
        "steps": 10,
        "nll": {"first": first, "second": second},
    }


def test_the_average_is_shown_for_the_recipe_alone():
    """The one damping, no momentum, no scale."""
    values = dict.fromkeys(("yacht", "energy", "kin8nm", "wine"), 0.25)
    rows = [
        make_row(form, damping, 0.0, 0.0) | {"nll": values, "nll_of_last": values | {"wine": 2.0}}
        for form, damping in (("identity", 0.1), ("identity", 0.3), ("factored", 0.3))
    ]
    last, average = scales_report.average_rows("small", rows)
    assert last == ["small", "short", "last", "0.250", "0.250", "0.250", "2.000"]
    assert average == ["small", "short", "average", "0.250", "0.250", "0.250", "0.250"]


def test_the_table_shows_each_way_with_the_damping_that_suits_all_sets(tmp_path):
    rows = [
        make_row("identity", 0.1, 0.0, 9.0),
        make_row("identity", 1.0, 2.0, 1.0),
        make_row("factored", 3.0, None, 0.0),  # diverged on one set: never the best
        make_row("factored", 10.0, 1.0, 3.0),
    ]
    assert [row["damping"] for row in scales_report.best_rows(rows)] == [1.0, 10.0]
    seconds = {"identity-0.0": 1e-4, "factored-0.0": 2e-4}
    Store(tmp_path).write(
        "damping/scales-small",
        spec={"experiment": "scales", "network": "small"},
        result={"rows": rows, "seconds_per_step": seconds},
        provenance={},
    )
    table, *_ = scales_report.blocks(Store(tmp_path))
    assert table.rows == [
        ["short", "identity", "0", "1", "100", "10", "2.000", "**1.000**", "1.500"],
        ["short", "factored", "0", "10", "200", "10", "**1.000**", "3.000", "2.000"],
    ]
