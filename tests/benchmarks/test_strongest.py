"""Baselines in environments of their own, searches, their scores and tables.

A small program of the tests, in another process of this interpreter, stands for other people's.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.tables import command, plan
from benchmarks.experiments.tables import data as tables_data
from benchmarks.experiments.tables import jobs as tables_jobs
from benchmarks.experiments.tables.outside import ask as outside_ask
from benchmarks.experiments.tables.plan import Job, Outside, has
from benchmarks.experiments.tables.predictions import (
    distribution,
    gaussian_nll_of,
    quantile_scores,
)
from benchmarks.experiments.tables.ranks import compare
from benchmarks.experiments.tables.report import pair_table, rank_table, rank_tables
from benchmarks.experiments.tables.search import (
    TRIALS,
    best_trial,
    draw_settings,
    gaussian_nll,
    held_out_tenth,
)
from benchmarks.experiments.tables.strongest import (
    groups,
    lowest_table,
    near_best_table,
    printed_table,
    strongest_blocks,
    strongest_score_table,
)
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.environments import ROOT, run_module
from benchmarks.machinery.store import Store


def make_split(seed):
    rng = np.random.default_rng(seed)
    inputs, targets = rng.normal(size=(69, 2)), 1e3 + 5 * rng.normal(size=69)
    return Split(inputs[:60], targets[:60], inputs[60:], targets[60:])


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs one model of the fake program on some splits and returns the cell."""
    monkeypatch.setattr(tables_jobs.data, "load", lambda path: [make_split(k) for k in range(3)])
    monkeypatch.setattr(outside_ask, "MODULES", "tests.benchmarks")

    def run(model, splits=1, dataset="yacht", **limits):
        monkeypatch.setitem(plan.OUTSIDE, model, Outside(("none",), "outside_fake", **limits))
        job = Job(model, dataset, splits, 0, tmp_path, tmp_path, Path(sys.executable))
        tables_jobs.run_job(job, lambda amount: None)
        return Store(tmp_path).load(Store(tmp_path).path(job.cell))

    return run


def test_a_program_in_another_process_is_scored_like_one_of_ours(run):
    cell = run("mixture", splits=2)
    for fold in range(2):
        split = make_split(fold)
        mean, std = split.train_targets.mean(), split.train_targets.std()
        nll = -stats.norm.logpdf(split.test_targets, mean, std).mean()
        np.testing.assert_allclose(cell["result"]["nll"][fold], nll, rtol=1e-5)
    assert cell["result"]["train_rows"] == [60, 60]
    assert cell["result"]["rows_left_out"] == [0, 0]
    assert cell["provenance"]["models"] == {"numpy": np.__version__}
    assert all(seconds >= 0 for seconds in cell["result"]["fit_seconds"])


def test_rows_are_limited_and_the_cell_says_so(run):
    cell = run("plain", rows=20)
    assert (cell["result"]["train_rows"], cell["result"]["rows_left_out"]) == ([20], [40])
    assert cell["spec"] == {"model": "plain", "dataset": "yacht", "seed": 0, "rows": 20}
    assert run("plain", rows=30)["result"]["train_rows"] == [30]  # another limit, another cell


def test_quantiles_have_no_density(run):
    result = run("quantiles")["result"]
    assert result["nll"] == [None]
    split = make_split(0)
    mean, std = split.train_targets.mean(), split.train_targets.std()
    atoms = mean + std * ((np.arange(10) + 0.5) / 10 - 0.5)
    crps = np.abs(split.test_targets[:, None] - atoms).mean()
    crps -= 0.5 * np.abs(atoms[:, None] - atoms).mean()  # the kernel form of equally likely values
    np.testing.assert_allclose(result["crps"], [crps], rtol=1e-6)
    np.testing.assert_allclose(result["width"], [0.9 * std], rtol=1e-6)


def test_what_does_not_finish_is_stored_as_such(run):
    result = run("endless", seconds=0.5)["result"]
    assert (result["rmse"], result["nll"], result["fit_seconds"]) == ([None], [None], [0.5])


def test_what_fails_says_what_it_said(run):
    with pytest.raises(RuntimeError, match=r"(?s)tables/yacht-fails failed.*no such luck"):
        run("fails")


def test_published_sets_are_also_scored_by_two_moments(run):
    result = run("plain", dataset="airfoil_bde")["result"]
    np.testing.assert_allclose(result["gaussian_nll"], result["nll"], rtol=1e-5)


PARENT = """
import sys
from pathlib import Path
from benchmarks.machinery.environments import run_module
run_module(Path(sys.executable), "benchmarks.experiments.tables.outside.run", sys.argv[1:])
"""


def test_a_program_ends_with_a_parent_that_is_killed(tmp_path):
    rows = {name: np.ones((4, 1)) for name in ("inputs", "test_inputs")}
    question = (
        '{"module": "tests.benchmarks.outside_fake", "model": "sleeps", "seed": 0, "seconds": 0}'
    )
    np.savez(tmp_path / "asked.npz", question=question, targets=np.arange(4.0), **rows)
    pid_file = tmp_path / "pid"
    variables = {**os.environ, "FISHER8_TEST_PID": str(pid_file), "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=variables)
    wait_until(lambda: pid_file.exists() and pid_file.read_text())
    child = int(pid_file.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not is_running(child))


def is_running(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.split()[2] != "Z"


def wait_until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_module_that_cannot_run_says_why():
    ended = run_module(Path(sys.executable), "benchmarks.no_such_module", [])
    assert ended.code == 1
    assert "no_such_module" in ended.errors


def test_arrays_become_distributions():
    mean, variance = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[1.0, 4.0], [1.0, 4.0]])
    one = distribution({"mean": mean[0], "variance": variance[0]}, 4)
    np.testing.assert_allclose(one.mean, [0, 1, 1, 1])
    np.testing.assert_allclose(one.variance, [1, 4, 4, 4])
    mixture = distribution({"mean": mean, "variance": variance}, 2)
    np.testing.assert_allclose(mixture.mean, [1, 1], rtol=1e-6)
    np.testing.assert_allclose(mixture.variance, [2, 4], rtol=1e-6)  # 1 and the means' own 1
    found = gaussian_nll_of(mixture, np.array([1.0, 3.0]))
    expected = -stats.norm.logpdf([1, 3], [1, 1], np.sqrt([2, 4]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_quantiles_of_a_normal_distribution_have_its_scores():
    levels = (np.arange(1000) + 0.5) / 1000
    quantiles = np.tile(stats.norm.ppf(levels), (2, 1))
    found = quantile_scores(quantiles, levels, np.array([0.0, 2.0]))
    z = np.array([0.0, 2.0])
    crps = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5
    np.testing.assert_allclose(found["crps"], crps.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["rmse"], np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(found["width"], 2 * stats.norm.ppf(0.95), rtol=1e-2)
    assert found["coverage"] == 0.5


def test_a_search_begins_with_the_defaults_and_stays_inside():
    space = {"rate": (0.02, 0.2), "depth": (4, 8)}
    drawn = draw_settings(space, 3, 200)
    assert drawn[0] == {}
    assert {one["depth"] for one in drawn[1:]} == {4, 5, 6, 7, 8}
    rates = np.log([one["rate"] for one in drawn[1:]])
    assert np.log(0.02) <= rates.min() < rates.max() <= np.log(0.2)
    assert stats.kstest(rates, stats.uniform(np.log(0.02), np.log(10)).cdf).pvalue > 0.01
    assert draw_settings(space, 3) == drawn[:TRIALS]
    assert draw_settings(space, 4) != drawn[:TRIALS]


def test_the_lowest_held_out_score_wins_and_nan_never():
    scores = iter([float("nan"), 3.0, -1.0, float("-inf"), *[2.0] * TRIALS])
    found = best_trial(lambda settings: (next(scores), 7), {"rate": (0.1, 1.0)}, 0)
    assert (found.score, found.trees) == (-1.0, 7)
    assert found.settings == draw_settings({"rate": (0.1, 1.0)}, 0)[2]


def test_a_tenth_is_held_out():
    held_out, others = held_out_tenth(93, 1)
    assert len(held_out) == 9
    np.testing.assert_array_equal(np.sort([*held_out, *others]), np.arange(93))
    values = np.array([0.3, -2.0])
    nll = -stats.norm.logpdf(values, 0, 2).mean() - 0.5 * np.log(2 * np.pi)
    assert gaussian_nll(values, np.zeros(2), np.full(2, 4.0)) == pytest.approx(nll)


def test_the_slow_sampler_is_left_out_of_large_sets():
    assert has("bde", "servo")
    assert not has("bde", "naval")
    assert not has("bde", "airfoil_bde")
    assert has("realmlp", "airfoil_bde")
    assert set(plan.LARGE) < set(plan.SPLITS)


def test_the_published_split_is_the_same_for_every_seed(tmp_path):
    split = make_split(0)
    np.savez(tmp_path / "bike_bde.npz", **split._asdict())
    splits = tables_data.load(tmp_path / "bike_bde.npz")
    assert len(splits) == 5
    np.testing.assert_array_equal(splits[4].test_targets, split.test_targets)


def test_an_environment_is_made_where_a_cell_is_missing(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(command, "environment", lambda *names, **_: made.append(names) or "python")
    monkeypatch.setattr(command, "prepare", lambda names, *_: dict.fromkeys(names, tmp_path))
    parser = command.argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--datasets", "servo", "naval", "bike_bde", "--results", str(tmp_path)]
    args = parser.parse_args(
        [*words, "--models", "realmlp", "bde", "--environments", str(tmp_path)]
    )
    jobs = command.make_jobs(args)
    assert [(job.model, job.dataset, job.splits) for job in jobs] == [
        ("realmlp", "servo", 3),
        ("realmlp", "naval", 3),
        ("realmlp", "bike_bde", 5),
        ("bde", "servo", 3),
    ]
    assert [names[0] for names in made] == [("pytabkit",), ("sklearn-contrib-bde",)]
    assert command.make_times_jobs(jobs) == []
    for job in jobs[:3]:
        result = {"rmse": [1.0] * job.splits}
        Store(tmp_path).write(job.cell, spec=job.spec, result=result, provenance={})
    made.clear()
    command.make_jobs(args)
    assert [names[0] for names in made] == [("sklearn-contrib-bde",)]


def result(nll, rmse=None, **more):
    values = {"nll": nll, "rmse": rmse or [1.0] * len(nll)}
    others = dict.fromkeys(("crps", "ece", "coverage", "width", "fit_seconds"), [0.5] * len(nll))
    return others | values | more


CELLS = {
    ("yacht", "fisher8"): result([1.0, 5.0]),
    ("yacht", "realmlp"): result([2.0]),
    ("yacht", "realmlp_quantiles"): result([None]),
    ("yacht", "tabm"): result([0.5], rows_left_out=[7], train_rows=[2000]),
    ("yacht", "bde"): result([None], rmse=[None]),
    ("energy", "fisher8"): result([1.0]),
    ("energy", "realmlp"): result([0.0]),
    ("energy", "realmlp_quantiles"): result([None]),
}


def test_ranks_are_those_of_complete_columns():
    (found,) = groups(CELLS)
    assert found.models == ("fisher8", "realmlp", "realmlp_quantiles")
    np.testing.assert_array_equal(found.ranks("nll"), [1.5, 1.5, np.nan])
    np.testing.assert_array_equal(found.ranks("crps"), [2.0, 2.0, 2.0])
    rows = rank_table(found, "all").rows
    assert rows[1][5] == "1 of 2"
    assert (rows[2][2], rows[2][5]) == ("", "")  # no density: no rank, no comparison
    fewer = CELLS | {("yacht", "bde"): result([3.0])}
    broad, every = groups(fewer)
    assert (broad.datasets, every.datasets) == (("yacht", "energy"), ("yacht",))
    assert every.models[-1] == "bde"
    names = ("servo", "wine", "autos")
    more = fewer | {(n, m): result([0.0]) for n in names for m in ("fisher8", "realmlp")}
    assert [one.models for one in groups(more)] == [("fisher8", "realmlp")]  # bde has one of five
    assert groups({}) == []
    assert compare(CELLS, ("fisher8",)).splits == (2, 1)


def test_a_model_is_close_to_the_best_within_two_percent():
    cells = {
        ("yacht", "fisher8"): result([0.0], rmse=[1.0]),
        ("yacht", "realmlp"): result([0.0], rmse=[1.019]),
        ("energy", "fisher8"): result([0.0], rmse=[1.021]),
        ("energy", "realmlp"): result([0.0], rmse=[1.0]),
    }
    rows = near_best_table(*groups(cells)).rows
    assert rows == [["Fisher8Regressor", "1 of 2", "0 of 1"], ["RealMLP", "2 of 2", "1 of 1"]]


def test_the_lowest_rmse_of_each_set_is_of_splits_that_both_have():
    def with_rmse(*values):
        return result([0.0] * len(values)) | {"rmse": list(values)}

    cells = {
        ("yacht", "fisher8"): with_rmse(1.0, 3.0, 9.0),
        ("yacht", "catboost"): with_rmse(2.0, 2.0),  # equal to 1 and 3
        ("yacht", "realmlp"): with_rmse(0.99),  # 1.01 times it: near
        ("energy", "fisher8"): with_rmse(1.0),
        ("energy", "ngboost"): with_rmse(0.5),
        ("wine", "ngboost"): with_rmse(0.5),
    }
    table = lowest_table(cells)
    assert "on 1 of 2 sets" in table.caption
    assert table.rows == [
        ["yacht", "2", "RealMLP", "1.01", "yes"],
        ["energy *", "1", "NGBoost", "2.00", "no"],
    ]


def test_the_table_says_what_did_not_finish_and_what_had_fewer_rows():
    table = strongest_score_table(CELLS, "nll", "NLL")
    yacht = dict(zip(table.header, table.rows[0], strict=True))
    assert yacht["splits"] == "1"
    assert yacht["Fisher8Regressor"] == "**1**"  # with fewer rows another model has less
    assert yacht["TabM"] == "0.5 (2,000 rows)"
    assert yacht["bde"] == "not finished"
    assert yacht["RealMLP, quantiles"] == ""


def test_published_figures_stand_above_those_computed_here():
    cells = CELLS | {("airfoil_bde", "realmlp"): result([-0.5, -0.7], gaussian_nll=[-0.4, -0.6])}
    table = printed_table(cells, "airfoil_bde")
    assert table.rows[0][:4] == ["bde, printed", "5", "0.1215 ± 0.0042", "-0.9126 ± 0.0131"]
    assert table.rows[-1][:5] == [
        "RealMLP", "2", "1.0000 ± 0.0000", "-0.5000 ± 0.1000", "-0.6000 ± 0.1000",
    ]  # fmt: skip
    assert printed_table(cells, "bike_bde") is None
    captions = [
        getattr(block, "caption", "") for block in strongest_blocks(cells, rank_tables, pair_table)
    ]
    assert captions[-1].startswith("Airfoil by the protocol of bde")
    assert strongest_blocks({}, rank_tables, pair_table) == []
