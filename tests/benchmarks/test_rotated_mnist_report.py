"""The report on rotated digits: seeds, the published figures, pictures."""

import math

import pytest

from benchmarks.experiments.rotated_mnist import curves, report
from benchmarks.machinery.document import Figure, to_markdown
from benchmarks.machinery.figures import style
from benchmarks.machinery.store import Store
from tests.benchmarks.test_rotated_mnist import make_job


def stored_cell(store, tmp_path, rmse, **fields):
    job = make_job(tmp_path, images="mnist", epochs=5, **fields)
    history = {"loss": [1.0], "epoch": [5], "scores": [[rmse, 4.0, None]]}
    result = {"rmse": rmse, "nll": 4.2, "ece": None, "feature_accuracy": 80.0, "history": history}
    store.write(job.cell, spec=job.spec, result=result, provenance={})


def test_report_groups_seeds_and_stands_beside_the_paper(tmp_path):
    store = Store(tmp_path)
    assert report.section(store) is None
    assert curves.figure(store) is None
    for seed, rmse in ((1, 14.0), (2, 16.0)):
        stored_cell(store, tmp_path, rmse, seed=seed)
    stored_cell(store, tmp_path, 20.0, regime="dependent")
    stored_cell(store, tmp_path, 12.0, method="fisher8_radius", learning_rate=1.0)
    trial = make_job(tmp_path, images="mnist", prior=None).grid_cell(0.1)
    store.write(trial, spec={}, result={"validation_nll": 1.0}, provenance={})
    first, radius, dependent = report.table_rows(store)
    assert first.seeds == (1, 2)
    assert first.mean[0] == 15
    assert first.std[0] == 1
    assert math.isnan(first.mean[2])
    assert first.learning_rate == pytest.approx(5e-4)
    assert first.paper[:2] == (14.709, 4.252)  # the published row of lambda = 0
    assert radius.paper is None
    assert dependent.regime == "dependent"
    job = make_job(tmp_path, images="mnist", epochs=5, seed=3)
    lost = {
        "rmse": 1e17,
        "nll": None,
        "ece": 0.5,
        "feature_accuracy": None,
        "history": {"epoch": []},
    }
    for nll in (59.9, None):  # a variance as large as the error
        store.write(job.cell, spec=job.spec, result={**lost, "nll": nll}, provenance={})
        assert report.table_rows(store)[0].diverged == (3,)
    text = to_markdown("", [report.section(store)], None)
    assert "15.00 ± 1.00 (14.71)" in text
    assert "3, 1 diverged" in text
    assert "Noise that depends on the digit" in text
    with style():  # as the report draws it
        assert len(curves.figure(store).axes) == 4


def test_the_picture_of_features_has_a_panel_for_each_regime_and_length(tmp_path):
    store = Store(tmp_path)
    stored_cell(store, tmp_path, 14.0)
    assert curves.trained_with_features(store) == []
    assert not any("features" in block.name for block in pictures(store))
    for regime, epochs in (("dependent", 100), ("independent", 500), ("independent", 100)):
        job = make_job(tmp_path, images="mnist", regime=regime, epochs=epochs)
        result = {"rmse": 14.0, "nll": 4.2, "ece": 0.1, "feature_accuracy": 81.0}
        looks = {"epoch": [epochs // 2, epochs], "scores": [[14.0, 4.2, 0.1]] * 2}
        history = {"loss": [1.0] * epochs, **looks, "features": [70.0, None]}
        store.write(job.cell, spec=job.spec, result={**result, "history": history}, provenance={})
    job = make_job(tmp_path, images="mnist", method="untrained", epochs=0)
    looks = {"epoch": [0], "scores": [[51.0, 5.3, 0.1]], "features": [72.0]}
    store.write(job.cell, spec=job.spec, result={**result, "history": looks}, provenance={})
    with style():
        axes = curves.features_figure(store).axes
    titles = [axis.get_title() for axis in axes]
    lengths = [title.rpartition(", ")[2] for title in titles]
    assert lengths == ["100 epochs", "500 epochs", "100 epochs"]
    assert [line.get_ydata()[0] for line in axes[0].lines] == [70.0, 72.0]
    assert [len(axis.lines) for axis in axes] == [2, 2, 1]  # untrained with equal noise alone
    assert any("features" in block.name for block in pictures(store))


def pictures(store):
    return [b for b in report.section(store).blocks if isinstance(b, Figure)]
