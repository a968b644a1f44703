"""The committed results themselves: intact, complete, and as close to the paper as is claimed."""

import pytest

from benchmarks.comparison import Comparison
from benchmarks.report_uci import winner_rows
from benchmarks.store import Store


@pytest.fixture(scope="module")
def comparison():
    return Comparison(Store())


def test_no_committed_cell_is_damaged():
    assert Store().damaged(".") == []


def test_every_published_cell_has_a_result_of_twenty_folds(comparison):
    assert comparison.missing == []
    assert {len(metrics["nll"].folds) for metrics in comparison.ours.values()} == {20}


def test_nineteen_of_twenty_figures_lie_within_one_published_std(comparison):
    found = comparison.differences(("rmse", "nll"))
    assert len(found) > 600
    assert sum(d.within for d in found) >= 0.95 * len(found)


def test_the_winner_in_nll_agrees_in_nine_rows_of_ten(comparison):
    rows = winner_rows(comparison)
    assert len(rows) == 72
    assert sum(ours in paper for *_, ours, paper in rows) >= 0.9 * len(rows)


def test_fisher8_leads_at_low_rates_and_falls_behind_at_the_largest(comparison):
    for rate in (0.001, 0.003, 0.005):
        assert comparison.ranks("nll", rate)["fisher8"][0] < 1.5
    assert comparison.ranks("nll", 0.1)["fisher8"][0] > 3
