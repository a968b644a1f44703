"""The study of other programs: its plan, losses, loops, choice of rates, environments, report."""

import argparse
import subprocess
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.adoption import causes, command
from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    look_steps,
    loss_of,
    mixture_nll,
    weaker,
)
from benchmarks.experiments.adoption.pictures import draw_returns
from benchmarks.experiments.adoption.plan import LOOKS, METHODS, PROGRAMS, changed_lines
from benchmarks.experiments.adoption.report import choose
from benchmarks.experiments.adoption.report_parts import best_nll, pets_returns, pets_table
from benchmarks.experiments.adoption.train import Parts
from benchmarks.machinery import environments
from benchmarks.machinery.command import UsageError
from benchmarks.machinery.store import Store
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


class Line:
    """A program whose network is two lines, one for each output."""

    axis, has_members = 0, False

    def __init__(self):
        self.x = jnp.linspace(-1, 1, 40)
        self.y = 2 * self.x + 0.3 * jnp.sin(31.0 * jnp.arange(40))
        self.network = SimpleNamespace(predict_one=self.predict, draw=lambda key, data: data)

    def start(self, seed):
        return 0.1 * jnp.arange(4.0) * (1 + seed)

    def rows(self, seed):
        return dict.fromkeys(("train", "validation", "test"), (self.x, self.y))

    def predict(self, params, x):
        return Gaussian(params[0] * x + params[1], params[2] * x + params[3])

    def score(self, dist, targets):
        return dist.nll(targets).mean()


def test_all_parts_of_the_change_together_are_fisher8():
    line = Line()
    params, (x, y) = [line.start(0)], line.rows(0)["train"]
    whole = causes._gradient(line, causes.VARIANTS["Fisher8"], params, x, y)[0]
    expected = jax.grad(lambda p: fisher8_nll(line.predict(p, x), y).sum())(params[0])
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    plain = causes._gradient(line, causes.VARIANTS["NLL"], params, x, y)[0]
    expected = jax.grad(lambda p: line.predict(p, x).nll(y).mean())(params[0])
    np.testing.assert_allclose(plain, expected, rtol=1e-5)


def test_with_networks_of_their_own_the_first_gets_no_gradient_of_the_log_variance():
    line = Line()
    params, (x, y) = [line.start(0), line.start(1)], line.rows(0)["train"]
    first, second = causes._gradient(line, causes.VARIANTS["Fisher8, own networks"], params, x, y)
    assert not first[2:].any()
    assert not second[:2].any()
    assert first[:2].all()
    assert second[2:].all()


def test_each_array_is_clipped_by_itself():
    np.testing.assert_allclose(causes._clipped(jnp.array([3.0, 4.0])), [0.9, 1.2], rtol=1e-6)
    np.testing.assert_array_equal(causes._clipped(jnp.array([0.3, 0.4])), jnp.array([0.3, 0.4]))
    np.testing.assert_array_equal(causes._clipped(jnp.zeros(2)), jnp.zeros(2))


@pytest.mark.parametrize(
    "name",
    ["NLL", "Fisher8, own networks", "NLL, clipped, rate to 0", "NLL, normalised SGD"],
)
def test_every_variant_trains(name):
    found = causes.scores(Line(), name, {"steps": 100, "seeds": 1})
    nll = np.array(found["test"])
    assert nll.shape == (1, len(causes.CAUSE_RATES), LOOKS)
    assert nll[0, -1, -1] < nll[0, -1, 0]


def test_a_variant_is_scored_at_its_best_rate_and_evaluations():
    validation = [[[3.0, 2.0], [1.0, None]], [[2.0, 2.0], [4.0, 0.0]]]
    test = [[[9.0, 9.0], [5.0, 8.0]], [[9.0, 9.0], [8.0, 7.0]]]
    assert best_nll({"validation": validation, "test": test}) == 6.0


def test_an_interrupted_cell_goes_on_from_what_is_done(tmp_path):
    parts = Parts(tmp_path / "parts.json")
    assert parts.get("a", lambda: [1.0]) == [1.0]
    again = Parts(tmp_path / "parts.json")
    assert again.get("a", lambda: pytest.fail("computed twice")) == [1.0]
    assert again.get("b", lambda: [2.0]) == [2.0]
    assert set(again.seconds) == {"a", "b"}


def test_what_goes_on_names_the_command_that_must_come_before(tmp_path):
    args = argparse.Namespace(
        problems=["all"], methods=["nll"], environments=None, results=tmp_path, data_dir=None
    )
    with pytest.raises(UsageError, match=r"--programs bde --problems airfoil --methods nll"):
        command.make_jobs(args, ["bde_sampler"])


def test_returns_of_pets_stand_under_their_episodes(tmp_path):
    store = Store(tmp_path)
    for method, planned in (("nll", [-800.0, -100.0]), ("fisher8", [-600.0, -300.0])):
        runs = [[{"return": [-1000.0, *planned]}, {"return": [-2000.0, *(2 * p for p in planned)]}]]
        store.write(
            f"adoption/rl_blox_pets-pendulum-{method}",
            spec={"rates": [0.01]},
            result={"runs": runs, "seconds": 30.0},
            provenance={},
        )
    found = pets_table(store)
    assert found.caption.endswith("1.0 minutes of one core")
    rows = [dict(zip(found.header, row, strict=True)) for row in found.rows]
    assert [row["random"] for row in rows] == ["-1500", "-1500"]
    assert [(row["planned 1"], row["planned 2"]) for row in rows] == [
        ("-1200", "-150"),
        ("-900", "-450"),
    ]
    assert rows[0]["mean"] == "-675 (-900 to -450)"
    assert draw_returns(pets_returns(store)).startswith(b"\x89PNG")
