"""The recovery benchmark: its measures on made-up curves, its recipe, and the table in the docs."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.families import jobs as families
from benchmarks.experiments.families.jobs import EVALUATE_EVERY
from benchmarks.experiments.families.plan import RECIPES, WIDTH
from benchmarks.experiments.families.problems import PROBLEMS
from benchmarks.experiments.families.report import counts, section
from benchmarks.machinery.document import table_lines
from benchmarks.machinery.store import Store

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def curve(*values):
    """Two seeds whose mean is the given curve."""
    return np.array([values, values]) + np.array([[0.01], [-0.01]])


def test_steps_are_counted_at_the_end_of_a_plan_and_at_the_first_crossing():
    curves = {
        "over 10": curve(0.5, 0.03),
        "over 20": curve(0.5, 0.3, 0.019, 0.021),  # crosses, but does not end within
        "over 30": curve(0.5, 0.3, 0.2, 0.03, 0.02, 0.01),
    }
    found = families._summary(curves, [10, 20, 30])
    assert found["planned"] == 30
    assert found["crossing"] == 3 * EVALUATE_EVERY
    assert found["excess_by_length"] == {"10": 0.03, "20": 0.021, "30": 0.01}


def test_a_constant_rate_is_a_candidate_for_every_length_and_divergence_is_none():
    curves = {
        "0.01 over 10": curve(np.nan, np.nan),
        "0.01 over 20": curve(0.5, 0.3, 0.2, 0.1),
        "0.01 constant": curve(0.5, 0.018, 0.2, 0.3),
    }
    found = families._summary(curves, [10, 20])
    assert (found["planned"], found["crossing"]) == (10, 10)
    assert found["excess_by_length"] == {"10": 0.018, "20": 0.1}


def test_counts_compare_both_methods_by_the_same_sense():
    def row(ours, adam):
        names = ("planned", "crossing")
        return {
            "fisher8": dict(zip(names, ours, strict=True)),
            "adam": dict(zip(names, adam, strict=True)),
        }

    rows = [row((100, 90), (200, 80)), row((100, 95), (100, 95)), row((None, None), (50, 40))]
    rows.append(row((100, 95), (None, None)))
    assert [line.split(": ")[1] for line in counts(rows)] == [
        "3 of 4",
        "2 of 4, equal in 1",
        "1 of 4, equal in 1",
        "1 of 4, equal in 0",
    ]


@pytest.mark.usefixtures("float32")
def test_networks_start_where_the_problem_says():
    problem = next(problem for problem in PROBLEMS.values() if problem.start)
    params = families._initial(problem, jax.random.key(0))
    assert [weights.shape[0] for weights, _ in params] == [2, WIDTH, WIDTH]
    silent = [*params[:-1], (0 * params[-1][0], params[-1][1])]
    dist = families._network(problem, silent, jnp.ones((1, 2)))
    expected = problem.distribution(jnp.asarray([problem.start]))
    jax.tree.map(np.testing.assert_array_equal, dist, expected)
    hidden = np.tanh(np.tanh(np.ones((1, 2)) @ params[0][0]) @ params[1][0])
    outputs = problem.distribution(jnp.asarray(hidden @ params[2][0] + params[2][1]))
    dist = families._network(problem, params, jnp.ones((1, 2)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), dist, outputs)


def test_the_docs_show_the_stored_table():
    table, below, recipes, *counts_below = section(Store()).blocks
    page = (DOCS / "families.md").read_text()
    lines = table_lines(table)
    assert all(line in page for line in [lines[0], *lines[2:], below.text])
    assert all(line in page for line in table_lines(recipes))
    assert all(words.text in page for words in counts_below)
    names = [row[0] for row in table.rows]
    assert names == [name for name in PROBLEMS if name in names]
    assert len(names) >= 14


def test_a_recipe_climbs_until_it_arrives():
    ends = {10: 0.5, 15: 0.03, 20: 0.01, 30: 0.001}
    trained = []

    def train(lengths, seeds):
        trained.extend(lengths)
        return {f"over {n}": np.full((len(seeds), n // EVALUATE_EVERY), ends[n]) for n in lengths}

    found = families.climb(train, [10, 15, 20, 30])
    assert trained == [10, 15, 20]
    assert found["planned"] == 20
    assert families.climb(train, [10, 15])["planned"] is None


def test_the_report_counts_recipes_beside_adam(tmp_path):
    recovery = {"planned": 100, "crossing": 100, "excess_by_length": {"100": 0.01}}
    row = {"family": "Gamma", "fisher8": recovery, "adam": recovery}
    write = functools.partial(Store(tmp_path).write, spec={}, provenance={})
    write("families/recovery/gamma", result=row)
    for recipe, needed in (("bare", 100), ("network", 30)):
        row = {"family": "Gamma", "adam": 100, "fisher8": {"planned": needed}}
        write(f"families/{recipe}/gamma", result=row)
    _, _, table, bare, network = section(Store(tmp_path)).blocks
    assert table.rows == [["Gamma", "100", "30", "100"]]
    assert "in 0 of 1 families, equal in 1" in bare.text
    assert "in 1 of 1 families, equal in 0" in network.text


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_recover_a_family(recipe):
    train = families.RECIPE_TRAINERS[recipe](PROBLEMS["Bernoulli"], 40)
    assert families.climb(train, [10, 20, 40])["planned"] is not None


@pytest.mark.slow
def test_a_family_is_trained_by_both_methods(monkeypatch):
    monkeypatch.setattr(families, "FIRST_CLIMB", 10)
    row = families.compute_row(PROBLEMS["Bernoulli"], [10, 40, 50], [0])
    assert row["ladder"] in ([10, 40], [10, 40, 50])
    assert row["fisher8"]["planned"] is not None
    assert row["adam"]["excess_by_length"]["40"] < row["adam"]["excess_by_length"]["10"]
