"""The summary table is what the documentation shows, and its formulas are what the code does."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.machinery.losses.objective import LOSSES
from benchmarks.machinery.losses.summary import LEGEND, ROWS, summary_table
from benchmarks.machinery.losses.trustable import natural_target
from fisher8_jax import Gaussian

PAGE = Path(__file__).parents[3] / "docs" / "losses.md"
RNG = np.random.default_rng(7)
MEAN, S, Y = RNG.normal(size=(3, 16))
LOW, HIGH = -2.0, 1.0

# From the two coordinates that a row names to a distribution.
TO_GAUSSIAN = {
    "mean, s": Gaussian,
    "mean, raw": lambda mean, raw: Gaussian.from_soft_bounds(
        mean, raw, min_log_variance=LOW, max_log_variance=HIGH
    ),
    "eta1, eta2": lambda eta1, eta2: Gaussian(-eta1 / (2 * eta2), -jnp.log(-2 * eta2)),
}


def coordinates(row):
    if row.coordinates == "eta1, eta2":
        return jnp.asarray(MEAN * np.exp(-S)), jnp.asarray(-0.5 * np.exp(-S))
    return jnp.asarray(MEAN), jnp.asarray(S)


def hyperparameters(row, dist):
    """Values away from the defaults, so that a formula that forgets one is found out."""
    return {
        "beta_nll": {"beta": 0.3},
        "trustable": {
            "reference": dist,
            "step_size": 0.05,
            "mean_bound": 100.0,
            "scale_bound": 100.0,
        },
        "collier": {"temperature": 0.7, "key": jax.random.key(0), "num_samples": 400_000},
        "wong_toi": {"rho": 0.8},
    }.get(row.loss, {})


def evaluate(expression, row, dist, raw):
    """The printed formula as numbers, in NumPy."""
    mean, s = np.asarray(dist.mean), np.asarray(dist.log_variance)
    std = np.exp(s / 2)
    goal = natural_target(dist, jnp.asarray(Y), step_size=0.05)
    below = HIGH - np.logaddexp(0, HIGH - raw)
    names = {
        "mean": mean,
        "s": s,
        "y": Y,
        "std": std,
        "z": (Y - mean) / std,
        "exp": np.exp,
        "norm": np.linalg.norm,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "beta": 0.3,
        "tau": 0.7,
        "rho": 0.8,
        "low": LOW,
        "high": HIGH,
        "raw": raw,
        "below": below,
        "mean_goal": np.asarray(goal.mean),
        "std_goal": np.asarray(goal.std),
    }
    return np.broadcast_to(eval(expression, {"__builtins__": {}}, names), Y.shape)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method)
def test_update_columns_are_what_the_code_does(row):
    to_gaussian = TO_GAUSSIAN[row.coordinates]
    first, second = coordinates(row)
    dist = to_gaussian(first, second)
    extra = hyperparameters(row, dist)

    def total(first, second):
        return LOSSES[row.loss](to_gaussian(first, second), jnp.asarray(Y), **extra).sum()

    actual = jax.jit(jax.grad(total, (0, 1)))(first, second)
    # Collier's formulas are the limit of many draws; 400 000 leave an error near 0.005.
    tolerance = 0.03 if row.loss == "collier" else 1e-10
    for gradient, expression in zip(actual, (row.mean_update, row.scale_update), strict=True):
        expected = evaluate(expression, row, dist, np.asarray(second))
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=tolerance)


def test_every_loss_has_a_row():
    assert {row.loss for row in ROWS} == set(LOSSES)


def test_page_contains_exactly_the_generated_table():
    page = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- summary table: begin -->\n", "\n<!-- summary table: end -->"
    assert page.count(start) == page.count(end) == 1
    shown = page.split(start)[1].split(end)[0]
    assert shown == f"{summary_table()}\n\n{LEGEND}"


def test_table_is_rectangular():
    lines = summary_table().splitlines()
    assert len(lines) == len(ROWS) + 2
    assert {line.count(" | ") for line in lines} == {6}
