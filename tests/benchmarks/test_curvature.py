"""The benchmark of the natural gradient: early stopping for all alike, budgets, angles."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.comparison.angles import _cosines
from benchmarks.experiments.curvature.costs import steps_for
from benchmarks.experiments.curvature.jobs import Candidate, Trial
from benchmarks.experiments.curvature.plan import AVERAGE, DAMPING, METHODS, max_kl
from benchmarks.experiments.curvature.report import VERDICT, mean_nll, section, verdict
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import network_gradient, network_optimizer
from fisher8_jax.optimizers import network_max_kl

CANDIDATES = [Candidate(0.1, "last"), Candidate(0.2, "last"), Candidate(0.1, "averaged")]


def make_trial(held_out):
    shape = np.shape(held_out)
    return Trial(CANDIDATES, np.array(held_out), {"nll": np.arange(np.prod(shape)).reshape(shape)})


def test_stopping_takes_the_best_look_of_every_split_and_one_candidate_for_all():
    # (looks, splits, candidates); the second diverges in one split
    trial = make_trial(
        [[[3.0, 9.0, 0.5], [2.0, np.inf, 0.5]], [[1.0, 0.0, 5.0], [4.0, np.inf, 5.0]]]
    )
    stopped = trial.stopped(("last",))
    assert stopped["chosen"] == {"value": 0.1, "parameters": "last"}
    assert stopped["looks"].tolist() == [1, 0]
    assert stopped["nll"].tolist() == [trial.scores["nll"][1, 0, 0], trial.scores["nll"][0, 1, 0]]
    assert trial.stopped(("last", "averaged"))["chosen"]["parameters"] == "averaged"


def test_the_end_is_chosen_among_what_a_method_may_have():
    trial = make_trial([[[0.0, 0.0, 0.0]], [[3.0, 2.0, 1.0]]])  # the first look does not count
    assert trial.best_at_end(("last",)) == Candidate(0.2, "last")
    assert trial.best_at_end(("last", "averaged")) == Candidate(0.1, "averaged")
    assert trial.best_at_end(("last", "averaged"), 0.2) == Candidate(0.2, "last")


def test_a_budget_is_the_time_of_so_many_steps_of_adam():
    costs = {"adam_nll": [0, 40e-6, 0], "network": [0, 120e-6, 0]}
    assert steps_for(costs, "network", 300) == 100
    assert steps_for(costs, "network_chosen", 300) == 100
    assert steps_for(costs, "adam_nll", 300) == 300


@pytest.mark.parametrize("steps", [10, 100, 520, 20_000])
def test_the_benchmark_has_the_radius_of_the_preset(steps):
    assert max_kl(steps) == pytest.approx(network_max_kl(steps))


def test_the_benchmark_has_the_damping_and_the_average_of_the_preset():
    assert inspect.signature(network_gradient).parameters["damping"].default == DAMPING
    assert inspect.signature(network_optimizer).parameters["average"].default == AVERAGE
    assert DAMPING in METHODS["network_chosen"].choices


def test_the_verdict_counts_baselines_alone():
    """One form of the natural gradient is never measured by the other."""
    baselines = {key: {"nll": [1.0]} for key in METHODS}
    found = {
        "first": baselines | {"network": {"nll": [0.9]}, "network_chosen": {"nll": [0.8]}},
        "second": baselines | {"network": {"nll": [1.5]}, "network_chosen": {"nll": [1.05]}},
    }
    assert verdict("network", found) == ["1 of 2", "1", "+0.50, second"]
    assert verdict("network_chosen", found) == ["1 of 2", "2", "+0.05, second"]


def test_a_split_that_diverged_makes_the_mean_infinite():
    assert mean_nll({"nll": [1.0, None]}) == np.inf
    assert mean_nll({"nll": [1.0, 2.0]}) == 1.5


def test_cosines_of_directions():
    vectors = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, -2.0]], np.float32)
    root = np.sqrt(0.5)
    expected = [[1, root, 0], [root, 1, -root], [0, -root, 1]]
    np.testing.assert_allclose(_cosines(vectors), expected, atol=1e-6)


def test_the_page_says_what_the_report_says():
    """The table of the page on the natural gradient, beside the one that stored results make."""
    blocks = section(Store(DEFAULT_RESULTS)).blocks
    (made,) = (b.rows for b in blocks if getattr(b, "caption", "").startswith(VERDICT))
    text = (Path(__file__).parents[2] / "docs/natural_gradient.md").read_text()
    part = text[text.index("## Equal processor time") :]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if " of 8 |" in line]
    assert len(rows) == len(made) == 6
    for ours, theirs in zip(rows, made, strict=True):
        expected = [theirs[0], *(text.lstrip("+").lower() for text in theirs[2:])]
        assert [ours[0], *(text.lower() for text in ours[2:])] == expected
