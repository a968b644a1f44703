"""The study of gaps: splits, scores, resuming, the report."""

import dataclasses

import numpy as np
import pytest

from benchmarks.experiments.gaps import jobs
from benchmarks.experiments.gaps.data import edge_split, gap_split, splits_for
from benchmarks.experiments.gaps.plan import GAPS, GROUPS, MODELS, Job, splits_of
from benchmarks.experiments.gaps.report import costs_table, estimator_table, load, section
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.store import Store
from fisher8_jax import Gaussian

RANDOM = np.random.default_rng(0)
WHOLE = Split(
    RANDOM.normal(size=(40, 3)),
    RANDOM.normal(size=40),
    RANDOM.normal(size=(5, 3)),
    RANDOM.normal(size=5),
)


def test_the_gap_is_the_middle_third_of_a_feature():
    split = gap_split(WHOLE, 1)
    low, high = split.test_inputs[:, 1].min(), split.test_inputs[:, 1].max()
    outside = split.train_inputs[:, 1]
    assert len(split.test_targets) == 15
    assert len(outside) == 30
    assert np.all((outside <= low) | (outside >= high))
    targets = np.concatenate([split.train_targets, split.test_targets])
    every = np.concatenate([WHOLE.train_targets, WHOLE.test_targets])
    np.testing.assert_array_equal(np.sort(targets), np.sort(every))


def test_the_edge_is_the_last_sixth_of_a_feature():
    split = edge_split(WHOLE, 2)
    assert len(split.test_targets) == 7
    assert len(split.train_targets) == 38
    assert split.test_inputs[:, 2].min() >= split.train_inputs[:, 2].max()
    np.testing.assert_array_equal(splits_for("edge", [WHOLE], 2).test_inputs, split.test_inputs)
    assert splits_for("random", [WHOLE], 0) is WHOLE


def test_scores_are_in_the_units_of_the_data():
    split = gap_split(WHOLE, 0)
    zeros = np.zeros(15, np.float32)
    found = jobs.scores_of(Gaussian(zeros, zeros), split)
    shift, scale = split.train_targets.mean(), split.train_targets.std()
    z = (split.test_targets - shift) / scale
    assert found["rmse"] == pytest.approx(scale * np.sqrt(np.mean(z**2)), rel=1e-5)
    nll = 0.5 * np.mean(z**2) + 0.5 * np.log(2 * np.pi) + np.log(scale)
    assert found["nll"] == pytest.approx(nll, rel=1e-5)
    assert found["coverage"] == np.mean(np.abs(z) < 1.6449)


def test_a_cell_goes_on_where_it_ended(tmp_path, monkeypatch):
    asked = []

    def predict(split, seed):
        asked.append(len(split.test_targets))
        zeros = np.zeros(len(split.test_targets), np.float32)
        return {"hgb": Gaussian(zeros, zeros)}

    monkeypatch.setitem(jobs.PREDICT, "hgb", predict)
    monkeypatch.setattr(jobs.data, "load", lambda path: [WHOLE])
    job = Job("hgb", "yacht", "gap", 2, 0, tmp_path / "yacht.npz", tmp_path)
    jobs.run_job(job, lambda done: None)
    jobs.run_job(dataclasses.replace(job, splits=3), lambda done: None)
    assert asked == [15, 15, 15]
    store = Store(tmp_path)
    result = store.read(job.cell, job.spec)
    assert dataclasses.replace(job, splits=3).is_whole(result)
    assert not dataclasses.replace(job, splits=4).is_whole(result)
    assert len(load(store)["gap", "yacht", "hgb"]) == 3
    text = to_markdown("", [section(store)], None)
    assert "The 3 gap splits that all these models have: yacht" in text
    assert "on which no default was chosen: none" in text
    assert "HGB" in text
    assert section(Store(tmp_path / "empty")) is None


def test_costs_are_medians_of_the_random_splits(tmp_path, monkeypatch):
    def predict(split, seed):
        zeros = np.zeros(len(split.test_targets), np.float32)
        return {"last_layer": Gaussian(zeros, zeros)}

    seconds = iter([0.1, 0.2, 0.6])
    monkeypatch.setitem(jobs.PREDICT, "last_layer", predict)
    monkeypatch.setattr(
        jobs, "costs", lambda split, seed, form: {"training": 1.0, "posterior": next(seconds)}
    )
    monkeypatch.setattr(jobs.data, "load", lambda path: [WHOLE] * 3)
    jobs.run_job(
        Job("last_layer", "yacht", "random", 3, 0, tmp_path / "yacht.npz", tmp_path), lambda _: None
    )
    found = costs_table(Store(tmp_path))
    assert found.rows == [["yacht", "", "", "", "1.000", "0.200", "20 %"]]
    assert len(found.header) == 7


def test_the_plan():
    assert len(GAPS) == 13
    assert set(MODELS) == {model for group in GROUPS.values() for model in group}
    assert splits_of("yacht", "gap") == splits_of("yacht", "edge") == 6
    assert splits_of("yacht", "random") == 3
    assert splits_of("naval", "random") == 1
    assert set(jobs.PREDICT) == set(GROUPS)


def test_the_estimator_is_compared_with_the_best_other_median():
    def splits(*values):
        return [{"nll": value, "coverage": 0.1 * k} for k, value in enumerate(values)]

    scores = {
        ("gap", "yacht", "estimator"): splits(1.0, 5.0, 2.0),
        ("gap", "yacht", "hgb"): splits(1.5, None, 0.5, 9.0),
        ("gap", "yacht", "gp"): splits(3.0, 4.0, 5.0),
        ("gap", "yacht", "one"): splits(0.0, 0.0, 0.0),  # a part of the study, no baseline
        ("gap", "servo", "hgb"): splits(1.0),
    }
    (row,) = estimator_table(scores).rows
    assert row == ["yacht", "3", "2.00", "", "4.00", "1.50", "", "0.50", "0.10"]
