"""The comparison with other estimators: scores by hand, resuming, and who counts as better."""

import pathlib

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.tables import jobs as estimator_jobs
from benchmarks.experiments.tables.command import make_times_jobs
from benchmarks.experiments.tables.plan import Job, TimesJob
from benchmarks.experiments.tables.report import best_published, reached, table
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.document import table_lines
from benchmarks.machinery.store import DEFAULT_RESULTS, Store


def make_split(seed):
    rng = np.random.default_rng(seed)
    return Split(
        rng.normal(size=(30, 2)), rng.normal(size=30), rng.normal(size=(9, 2)), rng.normal(size=9)
    )


def fit_constant(split, seed):
    """A model that knows the moments of the training targets alone."""
    mean, std = split.train_targets.mean(), split.train_targets.std()

    def predict(split):
        targets = split.test_targets
        nll = -stats.norm.logpdf(targets, mean, std)
        return estimator_jobs.Prediction(np.full(len(targets), mean), nll, {"seed": seed})

    return predict


@pytest.fixture
def make_job(monkeypatch, tmp_path):
    monkeypatch.setattr(
        estimator_jobs.uci_data, "load", lambda path: [make_split(k) for k in range(4)]
    )
    monkeypatch.setitem(estimator_jobs.FIT, "constant", fit_constant)
    return lambda splits, folder="a": Job(
        "constant", "yacht", splits, 0, tmp_path, tmp_path / folder
    )


def test_scores_are_those_of_the_published_tables(make_job):
    job = make_job(3)
    estimator_jobs.run_job(job, lambda amount: None)
    result = Store(job.results).read(job.cell, job.spec)
    for fold in range(3):
        split = make_split(fold)
        mean, std = split.train_targets.mean(), split.train_targets.std()
        z = (split.test_targets - mean) / std
        np.testing.assert_allclose(result["nll"][fold], np.mean(np.log(std) + z**2 / 2))
        np.testing.assert_allclose(result["rmse"][fold], np.sqrt(np.mean((z * std) ** 2)))
    assert len(set(result["seed"])) == 3


def test_an_interrupted_run_goes_on_where_it_ended(make_job):
    calls = []
    for splits in (1, 3):
        estimator_jobs.run_job(make_job(splits), calls.append)
    assert calls == [0, 1, 1, 1, 1]  # first what was there, then one split after the other
    estimator_jobs.run_job(make_job(3, "b"), lambda amount: None)
    cut, whole = (Store(j.results).read(j.cell, j.spec) for j in (make_job(3), make_job(3, "b")))
    for measured in ("fit_seconds", "machine"):
        del cut[measured], whole[measured]
    assert cut == whole


def test_better_means_better_to_the_printed_digits():
    best = best_published()
    assert len(best) == 16
    assert best["yacht", "rmse"] == 0.79  # beta-NLL at 0.001
    assert best["power", "nll"] == 1.91  # NLL at 0.001
    cells = {
        ("yacht", "fisher8"): {"rmse": [0.79, 0.798], "nll": [-0.30, -0.30]},
        ("naval", "fisher8"): {"rmse": [0.004], "nll": [-7.15]},
    }
    assert reached(cells, best) == ["yacht rmse", "naval rmse", "naval nll"]


def test_times_are_measured_for_all_models_on_two_splits(make_job, monkeypatch, tmp_path):
    fits = []

    def fit(split, seed):
        fits.append(seed)

    for model in estimator_jobs.MODELS:
        monkeypatch.setitem(estimator_jobs.FIT, model, fit)
    (job,) = make_times_jobs([make_job(1), make_job(1)])
    assert job == TimesJob("yacht", 0, tmp_path, tmp_path / "a")
    calls = []
    estimator_jobs.run_times_job(job, calls.append)
    result = Store(job.results).read(job.cell, job.spec)
    assert set(result["processor_seconds"]) == set(estimator_jobs.MODELS)
    assert all(len(pair) == 2 and min(pair) >= 0 for pair in result["processor_seconds"].values())
    assert len(calls) == len(fits) == 6
    assert sum(calls) == pytest.approx(1)
    assert len(set(fits)) == 2  # one seed per split, the same for every model


def test_the_documentation_shows_the_committed_results():
    page = pathlib.Path(__file__).parents[2] / "docs" / "estimator_table.txt"
    assert page.read_text().splitlines() == table_lines(table(Store(DEFAULT_RESULTS)))
