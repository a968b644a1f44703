"""The study of the estimator in use: parts, resuming, what follows from scores, the report."""

import dataclasses

import numpy as np
import pytest

from benchmarks.experiments.uci.data import Split
from benchmarks.experiments.uses import jobs
from benchmarks.experiments.uses.plan import (
    DATASETS,
    FIRST,
    INTERVALS,
    KINDS,
    PER_ROUND,
    REPETITIONS,
    ROUNDS,
    STRATEGIES,
    Job,
    repetitions_of,
)
from benchmarks.experiments.uses.report import METHODS, labels_needed, section
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.store import Store

RANDOM = np.random.default_rng(0)
WHOLE = Split(
    RANDOM.normal(size=(90, 3)),
    np.arange(90.0),
    RANDOM.normal(size=(10, 3)),
    np.arange(90.0, 100.0),
)


def make_job(tmp_path, kind="labels", dataset="airfoil", repetitions=1):
    paths = tmp_path / "data.npz", tmp_path, tmp_path / "environments"
    return Job(kind, dataset, repetitions, 0, *paths)


class Reported:
    """An estimator that knows the noise of a row by its first column."""

    def __init__(self, seed, **settings):
        self.rows = 0

    def fit(self, inputs, targets):
        self.rows = len(targets)
        return self

    partial_fit = fit

    def calibrate(self, inputs, targets):
        return self

    def nll(self, inputs, targets):
        return np.full(len(targets), 1 / self.rows)

    def predict(self, inputs, return_std=False):
        return np.full(len(inputs), 45.0), np.ones(len(inputs))

    def predict_interval(self, inputs, level, method="model"):
        width = 30.0 if method == "model" else 45.0
        return np.full(len(inputs), 45.0 - width), np.full(len(inputs), 45.0 + width)

    def predict_uncertainty(self, inputs):
        return inputs[:, 1], inputs[:, 0]

    def predict_information(self, inputs):
        return inputs[:, 1]


@pytest.fixture(autouse=True)
def without_training(monkeypatch):
    monkeypatch.setattr(jobs, "regressor", Reported)
    monkeypatch.setattr(jobs.data, "load", lambda path: [WHOLE])


def test_every_row_is_in_one_part(tmp_path):
    train, test = jobs.parts_of(make_job(tmp_path), 3, 0.3)
    assert len(test[1]) == 30
    np.testing.assert_array_equal(np.sort(np.concatenate([train[1], test[1]])), np.arange(100))
    other = jobs.parts_of(make_job(tmp_path), 4, 0.3)
    assert not np.array_equal(other[1][1], test[1])


def test_rows_are_labelled_by_their_worth(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        Reported, "fit", lambda self, x, y: asked.append(y) or setattr(self, "rows", 1) or self
    )
    pool = np.stack([np.arange(70.0), -np.arange(70.0)], axis=1), np.arange(70.0)
    monkeypatch.setattr(jobs, "ROUNDS", 1)
    monkeypatch.setattr(jobs, "FIRST", 5)
    monkeypatch.setattr(jobs, "PER_ROUND", 3)
    expected = {"random": [5, 6, 7], "variance": [69, 68, 67], "information": [5, 6, 7]}
    for strategy, rows in expected.items():
        asked.clear()
        jobs._learn(strategy, pool, pool, 0)
        assert [len(y) for y in asked] == [5, 8]
        np.testing.assert_array_equal(asked[1], [*range(5), *rows])


def test_a_cell_goes_on_where_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "FIRST", 20)
    monkeypatch.setattr(jobs, "PER_ROUND", 4)
    job = make_job(tmp_path)
    jobs.run_job(job, lambda done: None)
    two = dataclasses.replace(job, repetitions=2)
    store = Store(tmp_path)
    first = store.read(job.cell, job.spec)
    assert job.is_whole(first)
    assert not two.is_whole(first)
    jobs.run_job(two, lambda done: None)
    again = store.read(two.cell, two.spec)["repetitions"]
    assert again[0] == first["repetitions"][0]
    assert len(again) == 2
    assert again[0]["nll"]["random"][-1] == pytest.approx(1 / (20 + 4 * ROUNDS))


def test_all_three_kinds_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "FIRST", 20)
    monkeypatch.setattr(jobs, "PER_ROUND", 4)
    ends = np.zeros(30) + 10, np.zeros(30) + 80
    others = dict.fromkeys(tuple(METHODS)[3:], ends)
    monkeypatch.setattr(jobs, "ask_others", lambda *asked: (others, {"mapie": "1"}))
    for kind, dataset in (("labels", "airfoil"), ("intervals", "yacht"), ("updates", "kin8nm")):
        jobs.run_job(make_job(tmp_path, kind, dataset), lambda done: None)
    found = section(Store(tmp_path))
    text = to_markdown("", [found], None)
    assert "Coverage of 90 % intervals" in text
    assert "| 0.78 |" in text  # 70 beside 90
    assert "partial_fit" in text
    assert section(Store(tmp_path / "empty")) is None
    (figure,) = [block for block in found.blocks if hasattr(block, "draw")]
    assert figure.draw().startswith(b"\x89PNG")


def test_labels_needed_are_found_between_rounds():
    curve = np.array([2.0, 1.0, 1.5, 0.0])
    assert labels_needed(curve, 2.5) == FIRST
    assert labels_needed(curve, 1.5) == FIRST + PER_ROUND / 2
    assert labels_needed(curve, 0.5) == FIRST + 2.5 * PER_ROUND
    assert np.isnan(labels_needed(curve, -1.0))


def test_the_plan():
    assert set(DATASETS) == set(KINDS) == set(REPETITIONS) == set(jobs.USE)
    assert [repetitions_of("intervals", rows) for rows in (308, 1030, 8192)] == [8, 5, 2]
    assert repetitions_of("labels", 308) == REPETITIONS["labels"]
    assert len(INTERVALS) == 19
    assert set(STRATEGIES) == set(jobs.WORTH)
