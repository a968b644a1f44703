"""The study of one default: the truth it is compared with, what Adam is given, the summary."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.one_default import jobs, report
from benchmarks.experiments.one_default.plan import (
    ACTIVATIONS,
    CHOOSING,
    LENGTHS,
    METHODS,
    PROBLEMS,
    RATES,
    ROWS,
    STEPS,
    Job,
)
from benchmarks.experiments.one_default.problems import DRAWS, draw
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_nll_of_the_truth(problem):
    """In the units of standardised targets, by SciPy's density at the rows that were drawn."""
    found = draw(problem, 1)
    rng = generator("one_default", problem, 1)
    parts = [DRAWS[problem](rng, rows) for rows in (ROWS, len(found.test_targets))]
    targets = [mean + std * rng.normal(size=len(mean)) for _, mean, std in parts]
    shift, scale = targets[0].mean(), targets[0].std()
    np.testing.assert_allclose(found.test_targets, (targets[1] - shift) / scale, atol=1e-5)
    _, mean, std = parts[1]
    density = stats.norm.logpdf((targets[1] - shift) / scale, (mean - shift) / scale, std / scale)
    assert found.true_nll == pytest.approx(-density.mean(), rel=1e-9)
    np.testing.assert_allclose(found.inputs.std(0), 1, rtol=1e-4)


def test_scores_are_distances_to_the_truth():
    rows = draw("jumps", 0)._replace(true_nll=2.0)
    predict = jobs.Predict(jobs.Mlp((4,), jobs._ACTIVATIONS["tanh"]))
    params = predict.network.init(np.random.default_rng(0), 3)
    dist = predict(params, rows.test_inputs)
    nll = -stats.norm.logpdf(rows.test_targets, dist.mean, dist.std).mean()
    assert jobs._scores(predict, [rows], [params])[0] == pytest.approx(nll - 2.0, abs=1e-5)


def write(store, gap_of):
    for problem in PROBLEMS:
        for activation in ACTIVATIONS:
            for method in METHODS:
                job = Job(method, problem, activation, 0, store.root)
                budgets = LENGTHS if method == "adam" else STEPS
                gap = {steps: gap_of(method, steps) for steps in budgets}
                store.write(job.cell, spec=job.spec, result={"gap": gap}, provenance={})


def test_the_summary_counts_growth_and_wins(tmp_path):
    def gap_of(method, steps):
        if method == "adam":
            return [[9.0] * 3] * (len(RATES) - 1) + [[0.3, 0.2, 0.25]]
        grows = {"evidence": 0.1, "network": 0.1 * steps / 500, "fisher8": None}[method]
        return [grows] * 3

    write(Store(tmp_path), gap_of)
    gaps = report.load(Store(tmp_path))
    assert gaps["jumps", "relu", "adam", 500] == 0.25
    rows = {(row[0], row[1]): row[2:] for row in report.verdicts(gaps).rows}
    others = len(PROBLEMS) * len(ACTIVATIONS) - len(CHOOSING)
    names = METHODS
    assert rows["others", names["evidence"]][:3] == [f"{others} of {others}", "+0.000", "12 of 12"]
    assert rows["others", names["network"]][:3] == [f"0 of {others}", "+0.500", "6 of 12"]
    assert rows["others", names["fisher8"]][-1] == "inf"
    assert "friedman, silu*" in to_markdown("", [report.section(Store(tmp_path))], None)


def test_fits_of_the_sinusoid_are_counted():
    errors = {("constant", "evidence"): {"rmse": [0.004, 0.007, None]}}
    (row,) = report.sinusoid_table(errors).rows
    assert row[2] == "1 of 3"
