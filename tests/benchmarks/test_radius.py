"""The benchmark of the KL radius: no leak of held-out rows, and verdicts that can be negative."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.experiments.radius import jobs as radius_jobs
from benchmarks.experiments.radius.claims import ECE_MARGIN, RadiusResults
from benchmarks.experiments.radius.plan import VARIANTS, RadiusJob
from benchmarks.experiments.radius.report import section
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.document import Table, print_section
from benchmarks.machinery.store import Store


def make_job(experiment, dataset="yacht", results=Path("unused")):
    return RadiusJob(experiment, dataset, 0, Path("unused.npz"), results)


def write_cells(store, experiment, values, datasets=tuple(DATASETS)):
    """Cells with the same three scores in all 20 folds of every set."""
    for dataset in datasets:
        job = make_job(experiment, dataset)
        for variant in job.variants:
            result = {name: [value] * 20 for name, value in values.items()}
            store.write(
                job.cell(variant),
                spec=job.spec(variant),
                result=result | {"non_finite": [0] * 20},
                provenance={},
            )


def test_no_batch_contains_a_held_out_row():
    prepared = SimpleNamespace(train_rows=(277, 278, 277))
    job = make_job("held_out")
    held_out = radius_jobs._draw_held_out(job, prepared)
    schedule = radius_jobs._draw_schedule(job, prepared, held_out)
    assert schedule.rows.shape == (100 * (249 // 32), 3, 32)
    for fold, rows in enumerate(prepared.train_rows):
        held = set(held_out.rows[fold][held_out.mask[fold]])
        seen = set(schedule.rows[:, fold].ravel())
        assert len(held) == round(0.1 * rows)
        assert not held & seen
        # One row too many for the common number of batches may be left out.
        assert len(seen) >= rows - len(held) - 1
    first_epoch = schedule.rows[: 249 // 32, 0].ravel()
    assert len(set(first_epoch)) == len(first_epoch)


@pytest.mark.parametrize(
    ("values", "holds"), [((0.0, -9.0, 0.0), True), ((99.0, 99.0, 0.5), False)]
)
def test_verdicts_follow_the_scores(tmp_path, values, holds):
    store = Store(tmp_path)
    scores = dict(zip(("rmse", "nll", "ece"), values, strict=True))
    for experiment in VARIANTS:
        write_cells(store, experiment, scores)
    results = RadiusResults(store)
    assert [v.holds for v in results.verdicts_of_steps()] == [holds] * 24
    assert [v.holds for v in results.verdicts_of_cap()] == [holds] * 16
    assert [v.holds for v in results.verdicts_of_epochs("epochs", "last")] == [holds] * 16


def test_a_tie_is_no_win_but_within_the_margin_of_the_calibration_error(tmp_path):
    published = RadiusResults(Store(tmp_path))
    scores = {
        name: published.baseline("sgd", "yacht", name).value for name in ("rmse", "nll", "ece")
    }
    store = Store(tmp_path)
    write_cells(store, "steps", scores | {"ece": scores["ece"] + 0.9 * ECE_MARGIN})
    verdicts = RadiusResults(store).verdicts_of_steps()
    assert [(v.metric, v.holds) for v in verdicts if v.dataset == "yacht"] == [
        ("rmse", False),
        ("nll", False),
        ("ece", True),
    ]


def test_the_baseline_is_the_best_published_figure(tmp_path):
    results = RadiusResults(Store(tmp_path))
    # Read from the published tables by eye.
    assert results.baseline("sgd", "yacht", "rmse") == (5.56, "fisher8 at 0.03")
    assert results.baseline("sgd", "wine", "nll") == (0.07, "beta_nll at 0.03")
    assert results.baseline("adam", "concrete", "rmse") == (5.31, "beta_nll at 0.01")
    assert results.baseline("sgd", "energy", "rmse", method="fisher8") == (2.99, "fisher8 at 0.005")
    assert results.own_baseline("sgd", "naval", "rmse") is None


def test_a_diverged_run_is_counted(tmp_path):
    store = Store(tmp_path)
    write_cells(store, "cap", {"rmse": np.nan, "nll": 1.0, "ece": 0.1})
    table = section(store).blocks[0]
    assert all(row[1] == "160 of 160" for row in table.rows)


@pytest.mark.parametrize("experiment", VARIANTS)
def test_figures_of_a_partial_folder_stand_under_their_sets(tmp_path, experiment, capsys):
    store = Store(tmp_path)
    write_cells(store, experiment, {"rmse": 3.25, "nll": 1.0, "ece": 0.1}, ("energy", "wine"))
    found = section(store)
    assert print_section(found) == 0
    assert "wine" in capsys.readouterr().out
    for table in (block for block in found.blocks if isinstance(block, Table)):
        if "wine" in table.header:
            columns = dict(zip(table.header, table.rows[0], strict=True))
            given = {name for name in DATASETS if columns[name] == "3.25 / 1.00"}
            assert given == {"energy", "wine"}
            assert all(columns[name] == "-" for name in DATASETS if name not in given)


def test_there_is_no_section_without_results(tmp_path):
    assert section(Store(tmp_path)) is None
