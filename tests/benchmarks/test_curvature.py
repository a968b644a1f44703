"""The whole network's benchmark: early stopping for all alike, budgets, angles."""

import numpy as np
import pytest

from benchmarks.experiments.comparison.angles import _cosines
from benchmarks.experiments.curvature.costs import steps_for
from benchmarks.experiments.curvature.jobs import Trial
from benchmarks.experiments.curvature.plan import max_kl
from benchmarks.experiments.curvature.report import mean_nll
from fisher8_jax.transforms import network_max_kl


def test_stopping_takes_the_best_look_of_every_split_and_one_rate_for_all():
    held_out = np.array(  # (looks, splits, rates); the second rate diverges in one split
        [[[3.0, 9.0], [2.0, np.inf]], [[1.0, 0.0], [4.0, np.inf]]]
    )
    scores = {"nll": np.arange(8.0).reshape(2, 2, 2)}
    stopped = Trial(held_out, scores).stopped((0.1, 0.2))
    assert stopped["rate"] == 0.1
    assert stopped["looks"].tolist() == [1, 0]
    assert stopped["nll"].tolist() == [scores["nll"][1, 0, 0], scores["nll"][0, 1, 0]]


def test_a_budget_is_the_time_of_so_many_steps_of_adam():
    costs = {"adam_nll": [0, 40e-6, 0], "network": [0, 120e-6, 0]}
    assert steps_for(costs, "network", 300) == 100
    assert steps_for(costs, "adam_nll", 300) == 300


@pytest.mark.parametrize("steps", [10, 100, 520, 20_000])
def test_the_whole_network_has_the_radius_of_the_recipe(steps):
    assert max_kl(steps) == pytest.approx(network_max_kl(steps))


def test_a_split_that_diverged_makes_the_mean_infinite():
    assert mean_nll({"nll": [1.0, None]}) == np.inf
    assert mean_nll({"nll": [1.0, 2.0]}) == 1.5


def test_cosines_of_directions():
    vectors = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, -2.0]], np.float32)
    root = np.sqrt(0.5)
    expected = [[1, root, 0], [root, 1, -root], [0, -root, 1]]
    np.testing.assert_allclose(_cosines(vectors), expected, atol=1e-6)
