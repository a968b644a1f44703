"""The study of other programs: its plan, losses, loops, choice of rates, environments, report."""

import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    look_steps,
    loss_of,
    mixture_nll,
    weaker,
)
from benchmarks.experiments.adoption.plan import LOOKS, METHODS, PROGRAMS, changed_lines
from benchmarks.experiments.adoption.report import choose
from benchmarks.machinery import environments
from fisher8_jax import Gaussian, fisher8_nll


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_changed_lines_are_counted_without_docstrings_and_blanks(name):
    assert 0 < changed_lines(name) <= 15


def test_evaluations_end_with_the_last_step():
    steps = look_steps(1290)
    assert len(steps) == LOOKS
    assert steps[-1] == 1290
    assert steps == sorted(set(steps))


def test_a_tenth_of_the_pull_is_a_tenth_of_the_gradient():
    dist, targets = Gaussian(jnp.array([0.0, 1.0]), jnp.array([0.3, -0.2])), jnp.array([1.0, 3.0])
    full = jax.grad(lambda d: fisher8_nll(d, targets).sum())(dist)
    weak = jax.grad(lambda d: fisher8_nll(weaker(d), targets).sum())(dist)
    np.testing.assert_allclose(weak.mean, full.mean)
    np.testing.assert_allclose(weak.log_variance, 0.1 * full.log_variance, rtol=1e-6)


def test_the_program_keeps_its_own_loss_for_plain_nll_only():
    replaced = {method for method in METHODS if loss_of(method) is not None}
    assert replaced == set(METHODS) - {"nll"}


def test_a_mixture_of_equal_members_is_one_of_them():
    one, targets = Gaussian(jnp.zeros(3), jnp.ones(3)), jnp.arange(3.0)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), one)
    assert mixture_nll(both, targets) == pytest.approx(float(one.nll(targets).mean()), rel=1e-6)


@pytest.mark.parametrize("method", ["fisher8", "radius", "network"])
def test_the_loops_of_ours_fit_a_line(method):
    x = jnp.linspace(-1, 1, 64)
    y = 2 * x + 1 + 0.1 * jnp.sin(37.0 * jnp.arange(64))

    def predict_one(params, x):
        return Gaussian(params[0] * x + params[1], params[2])

    def loss(params, x, y):
        return fisher8_nll(jax.vmap(predict_one, (None, 0))(params, x), y).mean()

    network = Network(predict_one, loss, lambda key, data: data)
    loop = Loop(network, method, 200)
    snapshots = loop.train(jnp.zeros(3), (x, y), 0, 0.05)
    assert len(snapshots) == LOOKS
    np.testing.assert_allclose(snapshots[-1][:2], [2, 1], atol=0.1)


def cell(validation, test):
    runs = [
        [{"validation_nll": v, "test_nll": t} for v, t in zip(*seeds, strict=True)]
        for seeds in zip(validation, test, strict=True)
    ]
    return {"spec": {"rates": [0.1, 0.2]}, "result": {"steps": [5, 10], "runs": runs}}


def test_the_rate_is_chosen_by_validation_and_a_training_by_its_best_evaluation():
    found = choose(
        cell(
            validation=[[[3.0, 2.0], [3.0, 2.0]], [[1.0, 4.0], [2.0, None]]],
            test=[[[0.0, 0.0], [0.0, 0.0]], [[7.0, 8.0], [9.0, 6.0]]],
        )
    )
    assert found.rate == 0.2
    np.testing.assert_array_equal(found.scores["test_nll"], [7.0, 9.0])
    assert found.diverged == 1


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "no such package\n")

    monkeypatch.setattr(environments.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(environments.subprocess, "run", fail)
    with pytest.raises(
        environments.NotInstalledError, match=r"'bde' could not be installed.*--table"
    ):
        environments.environment(["bde"], tmp_path)
