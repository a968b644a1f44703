"""One new line in other code: what is stored, and what the page says of it."""

import argparse
import pathlib

import pytest

from benchmarks.experiments.recipes import command, report
from benchmarks.machinery.document import table_lines
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from examples import neural_process

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_every_rate_and_seed_is_trained_both_ways(tmp_path, monkeypatch):
    """The program itself is run by the tests of the examples."""

    def main(*, corrected, learning_rate, seed, steps):
        assert steps == 7
        if learning_rate == 0.03:
            return float("nan")
        return 10 * corrected + learning_rate + seed

    monkeypatch.setattr(neural_process, "main", main)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    options = ["--recipes", "neural_process", "--seeds", "2", "--steps", "7"]
    places = ["--results", str(tmp_path), "--docs", str(tmp_path / "table.txt")]
    assert command.run(parser.parse_args([*options, *places])) == 0
    result = Store(tmp_path).read("recipes/neural_process")
    assert result["plain"] == [[0.001, 1.001], [0.003, 1.003], [0.01, 1.01], [None, None]]
    assert result["corrected"][0] == [10.001, 11.001]
    plain, corrected = report.table(Store(tmp_path)).rows
    assert plain[2] == "**0.501 (0.001 to 1.001)**"
    assert corrected[2].startswith("**10.501")
    assert plain[-1] == corrected[-1] == "diverged"
    assert "| neural process | plain NLL |" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize("name", report.RECIPES)
def test_stored_cells_are_complete(name):
    result = Store(DEFAULT_RESULTS).read(f"recipes/{name}")
    assert set(result) == set(report.RECIPES[name].ways)
    for rates in result.values():
        assert len(rates) == len(command.RATES)
        assert {len(seeds) for seeds in rates} == {3}


def test_the_page_shows_what_is_stored():
    lines = table_lines(report.table(Store(DEFAULT_RESULTS)))
    assert (DOCS / "recipes_table.txt").read_text().splitlines() == lines
