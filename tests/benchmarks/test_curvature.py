"""The whole network's benchmark: early stopping for all alike, budgets, angles."""

import inspect

import numpy as np
import pytest

from benchmarks.experiments.comparison.angles import _cosines
from benchmarks.experiments.curvature.costs import steps_for
from benchmarks.experiments.curvature.jobs import Candidate, Trial
from benchmarks.experiments.curvature.plan import AVERAGE, DAMPING, METHODS, max_kl
from benchmarks.experiments.curvature.report import mean_nll, verdict
from fisher8_jax import network_gradient, network_optimizer
from fisher8_jax.transforms import network_max_kl


def test_stopping_takes_the_best_look_of_every_split_and_one_choice_for_all():
    held_out = np.array(  # (looks, splits, candidates); the second diverges in one split
        [[[3.0, 9.0], [2.0, np.inf]], [[1.0, 0.0], [4.0, np.inf]]]
    )
    scores = {"nll": np.arange(8.0).reshape(2, 2, 2)}
    candidates = [Candidate(0.1, "last"), Candidate(0.1, "averaged")]
    stopped = Trial(candidates, held_out, scores).stopped()
    assert stopped["chosen"] == {"value": 0.1, "parameters": "last"}
    assert stopped["looks"].tolist() == [1, 0]
    assert stopped["nll"].tolist() == [scores["nll"][1, 0, 0], scores["nll"][0, 1, 0]]


def test_a_budget_is_the_time_of_so_many_steps_of_adam():
    costs = {"adam_nll": [0, 40e-6, 0], "network": [0, 120e-6, 0]}
    assert steps_for(costs, "network", 300) == 100
    assert steps_for(costs, "network_chosen", 300) == 100
    assert steps_for(costs, "adam_nll", 300) == 300


@pytest.mark.parametrize("steps", [10, 100, 520, 20_000])
def test_the_whole_network_has_the_radius_of_the_recipe(steps):
    assert max_kl(steps) == pytest.approx(network_max_kl(steps))


def test_the_whole_network_has_the_damping_and_the_average_of_the_recipe():
    assert inspect.signature(network_gradient).parameters["damping"].default == DAMPING
    assert inspect.signature(network_optimizer).parameters["average"].default == AVERAGE
    assert DAMPING in METHODS["network_chosen"].choices


def test_the_verdict_counts_rivals_alone():
    """One form of the whole network is never measured by the other."""
    rivals = {key: {"nll": [1.0]} for key in METHODS}
    found = {
        "first": rivals | {"network": {"nll": [0.9]}, "network_chosen": {"nll": [0.8]}},
        "second": rivals | {"network": {"nll": [1.5]}, "network_chosen": {"nll": [1.05]}},
    }
    words = verdict("network", found)
    assert "**1 of 2**" in words
    assert "others on 1;" in words
    assert "+0.50 nats, on second" in words
    assert "others on 2;" in verdict("network_chosen", found)


def test_a_split_that_diverged_makes_the_mean_infinite():
    assert mean_nll({"nll": [1.0, None]}) == np.inf
    assert mean_nll({"nll": [1.0, 2.0]}) == 1.5


def test_cosines_of_directions():
    vectors = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, -2.0]], np.float32)
    root = np.sqrt(0.5)
    expected = [[1, root, 0], [root, 1, -root], [0, -root, 1]]
    np.testing.assert_allclose(_cosines(vectors), expected, atol=1e-6)
