"""The grid that looks for collapsed trainings: its plan, its data, its verdicts, one real job."""

import functools
import gzip
import pathlib

import jax
import numpy as np
import pytest

from benchmarks.experiments.collapse import data
from benchmarks.experiments.collapse.jobs import run_job
from benchmarks.experiments.collapse.optimizers import OPTIMIZERS, _short
from benchmarks.experiments.collapse.plan import (
    GROUPS,
    METHODS,
    VARIANTS,
    Job,
    groups,
    order,
    variant_jobs,
)
from benchmarks.experiments.collapse.report import Run, load, planned, section
from benchmarks.experiments.tables.data import prepare
from benchmarks.machinery.data import DataUnavailableError
from benchmarks.machinery.document import Table, table_lines
from benchmarks.machinery.store import Store
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network

DOCS = pathlib.Path(__file__).parents[2] / "docs"
HEALTHY = {
    "train_rmse": 0.5,
    "constant_share": 0.0,
    "spread": 0.8,
    "not_finite": 0,
    "dead": [0.0, 0.25],
}


def make_job(folder, width="2x50", steps=100, method="fisher8", sets=("solar",), batch=32):
    return Job(method, "relu", width, steps, batch, sets, (folder,) * len(sets), folder)


def prepare_table(root, rows=80):
    """The fast copy of a table in a data directory."""
    folder = root / "tables" / "solar"
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, 3))
    values[:, 2] = 5 * values[:, 0] + 100
    marks = np.arange(rows)[:, None] % 10 == np.arange(10)[None]
    folder.mkdir(parents=True)
    for name, array in (("data", values), ("test_mask", marks.astype(int))):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, array, delimiter=",")
    return prepare(["solar"], root, root / "cache")["solar"]


def test_the_grid_has_every_training_once(tmp_path):
    widths = {width: groups(width, data.SETS) for width in ("2x50", "3x256")}
    assert widths["2x50"] == [data.SETS]
    assert len(widths["3x256"]) == len(data.SETS) == 13
    # 5 activations, 2 batches, 13 sets; 5 seeds of all but the largest network's longest budget
    assert planned() == 5 * 2 * 13 * (5 * 5 + 3)
    cells = {make_job(tmp_path, w, s).cell for w in ("2x50", "3x256") for s in (100, 500, 2000)}
    assert len(cells) == 6
    assert make_job(tmp_path, "3x256", 2000).seeds == 3


def test_cheap_jobs_of_the_recipe_come_first(tmp_path):
    jobs = [
        make_job(tmp_path, "3x256", 2000, batch=256),
        make_job(tmp_path, "3x256", 100),
        make_job(tmp_path, "2x50", 100, "adam"),
        make_job(tmp_path, "2x50", 2000),
    ]
    assert order(jobs) == jobs[::-1]


@pytest.mark.parametrize(
    ("change", "is_constant", "is_diverged"),
    [
        ({}, False, False),
        ({"constant_share": 0.6}, False, False),  # half of the inputs is not all of them
        ({"constant_share": 1.0}, True, False),
        ({"spread": 1e-7}, True, False),
        ({"train_rmse": 2.0}, False, True),
        ({"train_rmse": None, "not_finite": 3}, False, True),
    ],
)
def test_what_counts_as_collapsed(change, is_constant, is_diverged):
    run = Run({}, "solar", HEALTHY | change)
    assert (run.is_constant, run.is_diverged) == (is_constant, is_diverged)


def test_splits_are_standardised_cut_and_padded(tmp_path):
    splits = data.load("solar", prepare_table(tmp_path), 2)
    arrays = data.stack(splits)
    assert arrays.train_inputs.shape == (2, data.LOOKED_AT, data.FEATURES)
    assert arrays.train_rows.tolist() == [72, 72]
    assert arrays.features.tolist() == [2, 2]
    np.testing.assert_allclose(arrays.train_targets[0, :72].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(arrays.train_targets[0, :72].std(), 1, rtol=1e-5)
    assert arrays.test_mask.sum(axis=1).tolist() == [8, 8]
    assert not arrays.train_inputs[:, :, 2:].any()


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(DataUnavailableError, match=r"tables/pol/data\.csv\.gz"):
        prepare(["pol"], tmp_path, tmp_path)


def test_a_job_writes_what_the_report_reads(tmp_path):
    path = prepare_table(tmp_path)
    job = make_job(path, sets=("solar",))._replace(results=tmp_path / "results")
    done = []
    run_job(job, done.append)
    assert sum(done) == pytest.approx(job.run_steps)
    runs = list(load(Store(job.results)))
    assert len(runs) == 5
    assert not any(run.is_constant or run.is_diverged for run in runs)
    assert all(run.scores["train_rmse"] < 0.5 for run in runs)  # a straight line is learned
    assert {len(run.scores["dead"]) for run in runs} == {2}
    table, words, dead = section(Store(job.results)).blocks
    assert table.rows[0][:4] == ["2x50", "100", "32", "0 of 5"]
    assert "**0** of 5 trainings end at a constant" in words.text
    assert dead.rows[0][2] == "fisher8"


def test_variants_are_jobs_apart_from_the_grid(tmp_path):
    assert set(OPTIMIZERS) == set(METHODS) | set(VARIANTS)
    assert set(GROUPS["chosen"]).isdisjoint(GROUPS["others"])
    assert sorted(GROUPS["chosen"] + GROUPS["others"]) == sorted(data.SETS)
    jobs = variant_jobs(dict.fromkeys(data.SETS, tmp_path), tmp_path)
    # 11 variants in three places by which they were judged, two in four others
    assert len({job.cell for job in jobs}) == len(jobs) == 11 * 3 + 2 * 4
    assert all(job.cell.startswith("collapse-variants/") and job.seeds == 3 for job in jobs)


def test_the_variants_lead_to_the_default():
    """What the study calls the default with another bound is the default at its own bound."""
    params, (inputs, targets) = make_params(), make_batch()
    gradients = fisher8_gradients(params, inputs, targets)

    def first_step(make):
        optimizer = make(jax.numpy.array(100))
        predict = functools.partial(network, inputs=inputs)
        return optimizer.update(gradients, optimizer.init(params), params, predict=predict)[0]

    same = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    bounded = first_step(_short(0.3))
    jax.tree.map(same, first_step(OPTIMIZERS["default"]), bounded)
    other = first_step(OPTIMIZERS["short_0.2"])
    # The bound is what is reached at the first step.
    jax.tree.map(lambda a, b: same(a / b, 1.5), bounded, other)


def test_the_report_compares_variants(tmp_path):
    scores = {key: [value] * 3 for key, value in (HEALTHY | {"train_nll": -1.25}).items()}
    for job in variant_jobs(dict.fromkeys(data.SETS, tmp_path), tmp_path)[:2]:
        result = dict.fromkeys(job.sets, scores)
        Store(tmp_path).write(job.cell, spec=job.spec, result=result, provenance={})
    (table,) = section(Store(tmp_path)).blocks
    assert [row[0] for row in table.rows] == list(VARIANTS.values())[:2]
    assert table.rows[0][1:] == ["-1.25; 25 %", "not run", "not run"]


def test_the_docs_show_the_stored_variants():
    page = (DOCS / "default_optimizer.md").read_text()
    tables = [
        block
        for block in section(Store()).blocks
        if isinstance(block, Table) and block.header[0] == "optimizer"
    ]
    assert len(tables) == 2
    for table in tables:
        assert all(line in page for line in table_lines(table))
