"""The comparison on tables: data, scores by hand, resuming, and who counts as better."""

import argparse
import math
import pathlib

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.tables import data as tables_data
from benchmarks.experiments.tables import jobs as tables_jobs
from benchmarks.experiments.tables import models
from benchmarks.experiments.tables.command import (
    KNOWN,
    SETS,
    for_docs,
    make_jobs,
    make_times_jobs,
    rounds,
)
from benchmarks.experiments.tables.figure import draw
from benchmarks.experiments.tables.plan import CHOSEN_ON, OUTSIDE, SPLITS, TABLES, Job
from benchmarks.experiments.tables.ranks import all_of, as_far_as, compare, load
from benchmarks.experiments.tables.report import (
    pair_table,
    rank_table,
    score_table,
    section,
    variant_tables,
)
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.data import DataUnavailableError
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian


def make_split(seed):
    rng = np.random.default_rng(seed)
    inputs, targets = rng.normal(size=(69, 2)), 1e3 + 5 * rng.normal(size=69)
    return Split(inputs[:60], targets[:60], inputs[60:], targets[60:])


def fit_constant(split, seed):
    """A model that knows the moments of the training targets alone."""
    return lambda inputs: Gaussian(np.zeros(len(inputs), np.float32), np.zeros(len(inputs)))


@pytest.fixture
def make_job(monkeypatch, tmp_path):
    monkeypatch.setattr(tables_jobs.data, "load", lambda path: [make_split(k) for k in range(4)])
    monkeypatch.setitem(tables_jobs.FIT, "constant", fit_constant)
    return lambda splits, folder="a": Job(
        "constant", "yacht", splits, 0, tmp_path, tmp_path / folder
    )


def test_scores_are_those_of_the_textbook_in_the_units_of_the_data(make_job):
    job = make_job(2)
    tables_jobs.run_job(job, lambda amount: None)
    result = Store(job.results).read(job.cell, job.spec)
    for fold in range(2):
        split = make_split(fold)
        mean, std = split.train_targets.mean(), split.train_targets.std()
        targets = split.test_targets
        z = (targets - mean) / std
        nll = -stats.norm.logpdf(targets, mean, std).mean()
        crps = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
        inside = np.abs(z) <= stats.norm.ppf(0.95)
        np.testing.assert_allclose(result["nll"][fold], nll, rtol=1e-5)
        np.testing.assert_allclose(result["rmse"][fold], std * np.sqrt(np.mean(z**2)), rtol=1e-5)
        np.testing.assert_allclose(result["crps"][fold], crps.mean(), rtol=1e-3)
        np.testing.assert_allclose(result["coverage"][fold], inside.mean(), rtol=1e-5)
        width = 2 * stats.norm.ppf(0.95) * std
        np.testing.assert_allclose(result["width"][fold], width, rtol=1e-4)
    assert result["non_finite"] == [0, 0]


def test_an_interrupted_run_goes_on_where_it_ended(make_job):
    calls = []
    for splits in (1, 3):
        tables_jobs.run_job(make_job(splits), calls.append)
    assert calls == [1, 1, 1]
    tables_jobs.run_job(make_job(3, "b"), lambda amount: None)
    cut, whole = (Store(j.results).read(j.cell, j.spec) for j in (make_job(3), make_job(3, "b")))
    for measured in ("fit_seconds", "predict_seconds", "machine"):
        del cut[measured], whole[measured]
    assert cut == whole


def test_the_first_split_of_all_comes_first(tmp_path):
    jobs = [Job(m, "yacht", n, 0, tmp_path, tmp_path) for m, n in (("a", 3), ("b", 1))]
    assert [[(j.model, j.splits) for j in one] for one in rounds(jobs)] == [
        [("a", 1), ("b", 1)],
        [("a", 2)],
        [("a", 3)],
    ]
    assert {job.cell for job in make_times_jobs(jobs)} == {
        "tables-times/yacht-a",
        "tables-times/yacht-b",
    }


def test_sets_are_read_from_their_folder(tmp_path):
    folder = tmp_path / "tables" / "servo"
    folder.mkdir(parents=True)
    rows = np.arange(12.0).reshape(4, 3)
    mask = np.array([[1, 0], [0, 1], [0, 0], [0, 0]])
    np.savetxt(folder / "data.csv.gz", rows, delimiter=",")
    np.savetxt(folder / "test_mask.csv.gz", mask, delimiter=",")
    path = tables_data.prepare(["servo"], tmp_path, tmp_path / "cache")["servo"]
    first, second = tables_data.load(path)
    np.testing.assert_array_equal(first.test_inputs, rows[:1, :2])
    np.testing.assert_array_equal(first.train_targets, rows[1:, 2])
    np.testing.assert_array_equal(second.test_targets, rows[1:2, 2])
    with pytest.raises(DataUnavailableError, match=r"tables/autos/data\.csv\.gz"):
        tables_data.prepare(["autos"], tmp_path, tmp_path / "cache")
    arguments = argparse.Namespace(
        datasets=["servo"], models=["catboost"], splits=20, seed=0, data_dir=tmp_path,
        cache_dir=tmp_path / "cache", results=tmp_path, environments=tmp_path,
    )  # fmt: skip
    assert [job.splits for job in make_jobs(arguments)] == [TABLES["servo"]]


def test_there_are_23_sets_and_nine_of_them_were_not_chosen_on():
    assert len(SPLITS) == 23
    assert set(CHOSEN_ON) < set(SPLITS)
    assert len(CHOSEN_ON) == 14
    assert sum(number == 20 for number in SPLITS.values()) == 8


@pytest.mark.parametrize(
    "name",
    [
        "catboost",
        "catboost_searched",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "hist_gradient_boosting",
                "ngboost",
                "hist_gradient_boosting_searched",
            )
        ),
    ],
)
def test_boosted_trees_predict_means_and_variances(name):
    """On data whose noise has two sizes, known by hand."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (500, 1))
    std = np.where(inputs[:, 0] > 0, 2.0, 0.2)
    targets = 10 * np.sign(inputs[:, 0]) + std * rng.normal(size=500)
    split = Split(inputs, targets, inputs, targets)
    shift, scale = models.units_of(split)
    dist = tables_jobs.FIT[name](split, 0)(np.array([[-0.5], [0.5]]))
    np.testing.assert_allclose(np.asarray(dist.mean) * scale + shift, [-10, 10], atol=2)
    predicted = np.asarray(dist.std) * scale
    assert 0.1 < predicted[0] < 0.6
    assert 1.2 < predicted[1] < 3


def make_cells(nll):
    scores = ("rmse", "crps", "ece", "coverage", "width", "fit_seconds")
    return {
        key: dict.fromkeys(scores, [1.0] * len(values)) | {"nll": values}
        for key, values in nll.items()
    }


def test_ranks_are_means_over_the_same_splits():
    found = compare(
        make_cells(
            {
                ("yacht", "fisher8"): [1.0, 1.0],
                ("yacht", "catboost"): [2.0],
                ("servo", "fisher8"): [3.0],
                ("servo", "catboost"): [1.0, 9.0],
                ("wine", "fisher8"): [0.0],  # the other has no such set
            }
        )
    )
    assert found.models == ("catboost", "fisher8")
    assert dict(zip(found.datasets, found.splits, strict=True)) == {"yacht": 1, "servo": 1}
    np.testing.assert_allclose(found.ranks("nll"), [1.5, 1.5])
    np.testing.assert_allclose(found.ranks("rmse"), [1.5, 1.5])  # equal figures share a rank
    assert found.wins("nll", "fisher8", "catboost") == 1
    assert found.only(["yacht"]).wins("nll", "fisher8", "catboost") == 1
    cells = make_cells({("yacht", "fisher8"): [1.0], ("wine", "fisher8"): [0.0]})
    cells |= make_cells({("yacht", "catboost"): [2.0]})
    every = all_of(cells, "fisher8")
    assert every.datasets == ("yacht", "wine")
    np.testing.assert_array_equal(every.means["nll"], [[2.0, 1.0], [np.nan, 0.0]])
    assert score_table(every, "nll").rows[1][2:] == ["", "**0**"]
    assert as_far_as(cells, "fisher8") == ("fisher8",)
    table = rank_table(found, "all")
    assert table.rows[0][5:7] == ["1 of 2", "0 of 2, 2 equal"]
    assert draw(found).startswith(b"\x89PNG")


def test_each_baseline_is_compared_on_all_splits_that_both_have():
    cells = make_cells(
        {
            ("yacht", "fisher8"): [1.0, 5.0, 0.0],
            ("yacht", "catboost"): [2.0, 2.0],
            ("yacht", "ngboost"): [2.0],
            ("wine", "fisher8"): [0.0],
            ("wine", "ngboost"): [1.0, 7.0],
        }
    )
    rows = pair_table(cells).rows
    assert [row[:3] for row in rows] == [["CatBoost", "2", "0 of 1"], ["NGBoost", "2", "2 of 2"]]
    assert [row[-1] for row in rows] == ["-1.000", "1.000"]  # 2 - 3; the mean of 2 - 1 and 1 - 0


def test_variants_stand_beside_the_estimator_without_a_rank():
    cells = make_cells(
        {
            ("yacht", "fisher8"): [1.0, 2.0, 9.0],
            ("yacht", "plain_mixture"): [2.0, 2.0],
            ("wine", "fisher8"): [0.0],
            ("wine", "plain_mixture"): [-1.0],
        }
    )
    assert compare(cells).models == ("fisher8",)
    (table,) = variant_tables(cells)
    (row,) = table.rows
    assert row[1:3] == ["3", "1 of 2"]
    assert row[4] == "0.500 (0.750)"  # the mean of 2 and -1, beside that of 1.5 and 0
    assert not variant_tables(make_cells({("yacht", "fisher8"): [1.0]}))


def test_the_stored_results_have_a_section():
    store = Store(DEFAULT_RESULTS)
    found = section(store)
    assert found is not None
    page = pathlib.Path(__file__).parents[2] / "docs" / "estimator_tables.txt"
    assert page.read_text() == for_docs(found)
    for (name, model), result in load(store).items():
        assert name in SETS
        assert model in KNOWN
        assert len(result["rmse"]) <= SETS[name]
        if model not in OUTSIDE:
            assert all(math.isfinite(value) for value in result["nll"])
