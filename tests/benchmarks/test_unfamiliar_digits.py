"""The study of unfamiliar digits: which images, the area under the curve, the report."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.experiments.unfamiliar_digits import jobs
from benchmarks.experiments.unfamiliar_digits.plan import SCORES, UNFAMILIAR, Job
from benchmarks.experiments.unfamiliar_digits.report import section
from benchmarks.machinery.store import Store


def test_area_under_the_curve():
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 9, 50), rng.integers(3, 12, 30)
    labels = np.repeat([0, 1], [50, 30])
    expected = roc_auc_score(labels, np.concatenate([low, high]))
    assert jobs.auroc(low, high) == pytest.approx(expected)


def test_images(tmp_path):
    problem = jobs.make_problem(Job("digits", 0, None, tmp_path))
    assert set(problem.unfamiliar) == set(UNFAMILIAR)
    assert problem.inputs.shape[1] == 64
    np.testing.assert_allclose(problem.inputs.mean(0), 0, atol=1e-6)
    assert np.abs(problem.targets).max() < 2
    shift = np.sort(problem.unfamiliar["shuffled"] - problem.familiar, 1)
    assert np.any(shift != 0)
    large = jobs._rows(np.arange(2 * 28 * 28.0).reshape(2, 28, 28))
    assert large.shape == (2, 196)
    assert large[0, 0] == np.mean([0, 1, 28, 29])


def test_what_is_stored_is_printed(tmp_path):
    result = {"auroc": {kind: dict.fromkeys(SCORES, 0.75) for kind in UNFAMILIAR}}
    for seed in (0, 1):
        job = Job("digits", seed, None, tmp_path)
        Store(tmp_path).write(job.cell, spec=job.spec, result=result, provenance={})
    table = section(Store(tmp_path)).blocks[-1]
    assert table.caption.endswith("2 seeds")
    assert table.rows[0][1:] == ["0.750 (0.750)"] * len(UNFAMILIAR)
