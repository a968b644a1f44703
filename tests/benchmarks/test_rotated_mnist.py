"""The rotated-digit benchmark: partial batches, optimiser, scores, probe, resuming, command."""

import argparse
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from benchmarks.__main__ import main
from benchmarks.experiments.rotated_mnist import command as rotated_mnist
from benchmarks.experiments.rotated_mnist import jobs as rotated_mnist_jobs
from benchmarks.experiments.rotated_mnist.data import (
    Problem,
    Rotated,
    load_digits,
    make_problem,
)
from benchmarks.experiments.rotated_mnist.networks import MomentumSgd, make_setup, representation
from benchmarks.experiments.rotated_mnist.plan import PRESETS, PRIOR_GRID, SETTINGS, Job
from benchmarks.machinery.rows import shuffled_epoch
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from fisher8_jax import Gaussian, network_gradient, network_optimizer

pytestmark = pytest.mark.usefixtures("float32")


def make_job(tmp_path, **fields):
    values = {
        "images": "digits",
        "regime": "independent",
        "method": "fisher8",
        "seed": 1,
        "epochs": 2,
        "learning_rate": 5e-6,
        "schedule": "constant",
        "prior": 0.0,
        "data": None,
        "results": tmp_path / "results",
        "scratch": tmp_path / "scratch",
    }
    return Job(**{**values, **fields})


@pytest.fixture(scope="module")
def small_problem():
    """A few digits at full width, so that every method trains within a second."""
    problem = make_problem(load_digits("digits", None), "independent", seed=1)

    def part(rotated, rows):
        return Rotated(*(leaf[:rows] for leaf in rotated))

    return Problem(problem.name, part(problem.train, 300), part(problem.test, 100), problem.scale)


def test_partial_batches_are_kept_and_masked():
    rows, where = shuffled_epoch(np.random.default_rng(0), 10, batch=4)
    assert rows.shape == where.shape == (3, 4)
    assert sorted(rows[where]) == list(range(10))
    assert where.sum(axis=1).tolist() == [4, 4, 2]


def test_training_is_plain_sgd_with_momentum_on_true_batches(small_problem, tmp_path):
    """The shared loop against a loop written out here, partial batch without a mask."""
    job = make_job(tmp_path, prior=500.0, method="beta_nll", learning_rate=0.05, schedule="cosine")
    rows = len(small_problem.train.inputs)
    setup = make_setup("beta_nll", prior=500.0, rows=rows)
    rotated_mnist_jobs.BATCH, batch = 128, rotated_mnist_jobs.BATCH
    try:
        trained, _ = rotated_mnist_jobs.fit(
            job, setup, small_problem, None, tmp_path / "c", lambda amount: None
        )
        schedules = [rotated_mnist_jobs.epoch_schedule(job, rows, epoch) for epoch in range(2)]
    finally:
        rotated_mnist_jobs.BATCH = batch
    params = setup.network.init(generator("rotated_mnist", 1, "init"), 64)

    def objective(params, inputs, targets):
        hidden = inputs
        for layer in params["trunk"]:
            hidden = jnp.maximum(hidden @ layer["w"] + layer["b"], 0)
        mean, raw = (hidden @ params["head"]["w"] + params["head"]["b"]).T
        variance = jnp.logaddexp(raw, 0) + 1e-8
        nll = 0.5 * jnp.log(2 * jnp.pi * variance) + (targets - mean) ** 2 / (2 * variance)
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        values = jax.lax.stop_gradient(variance) ** 0.5 * nll
        return values.mean() + 0.5 * 500.0 * squares / rows

    velocity = jax.tree.map(np.zeros_like, params)
    gradient = jax.jit(jax.grad(objective))
    step, steps = 0, 6
    for schedule in schedules:
        for order, where in zip(schedule.rows[:, 0], schedule.where[:, 0], strict=True):
            chosen = order[where]
            found = gradient(
                params, small_problem.train.inputs[chosen], small_problem.train_targets[chosen]
            )
            velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, found)
            factor = 1e-3 + (1 - 1e-3) * (1 + math.cos(math.pi * step / steps)) / 2
            rate = 0.05 * factor
            params = jax.tree.map(lambda p, v, rate=rate: p - rate * v, params, velocity)
            step += 1
    assert step == steps
    for ours, expected in zip(jax.tree.leaves(trained), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-5)


def test_scores_are_in_degrees(small_problem, tmp_path):
    job = make_job(tmp_path)
    setup = make_setup("fisher8", prior=0.0, rows=300)
    params = setup.network.init(np.random.default_rng(0), 64)
    rmse, nll, ece = rotated_mnist_jobs.evaluate(job, setup, params, small_problem)
    (mean, log_variance), _ = setup.network.forward(
        params, None, small_problem.test.inputs, key=None, stop_gradient=False, train=False
    )
    mean = np.asarray(mean, float) * small_problem.scale
    std = np.exp(np.asarray(log_variance, float) / 2) * small_problem.scale
    test = small_problem.test
    assert rmse == pytest.approx(np.sqrt(np.mean((mean - test.angles) ** 2)), rel=1e-5)
    assert nll == pytest.approx(-stats.norm.logpdf(test.noisy, mean, std).mean(), rel=1e-5)
    shares, _ = np.histogram(stats.norm.cdf(test.noisy, mean, std), 10, (0, 1))
    shares = shares[shares > 0] / 100
    assert ece == pytest.approx(np.mean(np.abs(shares - 0.1)), abs=1e-6)


def test_probe_sees_the_right_layer():
    setup = make_setup("fisher8", prior=0.0, rows=10)
    params = setup.network.init(np.random.default_rng(0), 64)
    assert len(params["trunk"]) == 3
    inputs = np.random.default_rng(1).uniform(size=(4, 64)).astype(np.float32)
    features = representation("fisher8", params, inputs)
    assert (np.asarray(features) < 0).any()
    np.testing.assert_allclose(
        jax.nn.relu(features), setup.network.features(params, inputs), atol=1e-6
    )
    faithful = make_setup("faithful", prior=0.0, rows=10).network
    params = faithful.init(np.random.default_rng(0), 64)
    assert len(params["trunk"]) == 2
    features = representation("faithful", params, inputs)
    np.testing.assert_array_equal(features, faithful.features(params, inputs))


def test_sizes_of_the_published_networks():
    def size(method):
        network = make_setup(method, prior=0.0, rows=10).network
        params = network.init(np.random.default_rng(0), 784)
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    assert size("fisher8") == size("beta_nll") == 894_502
    assert size("faithful") == 644_002


def test_output_biases_of_faithful_learn_at_a_tenth():
    params = {"trunk": [{"w": jnp.ones(2), "b": jnp.ones(2)}], "head": {"w": jnp.ones(2), "b": 1.0}}
    gradient = jax.tree.map(jnp.ones_like, params)
    optimizer = MomentumSgd(head_bias_rate=0.1)(jnp.asarray(0.1))
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    assert float(updates["head"]["b"]) == pytest.approx(-0.01)
    assert float(updates["head"]["w"][0]) == pytest.approx(-0.1)
    clipped = MomentumSgd(clip=1.0)(jnp.asarray(1.0))
    updates, _ = clipped.update(gradient, clipped.init(params), params)
    assert float(optax.tree.norm(updates)) == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["collier", "trustable", "fisher8_radius", "natural_nll"])
def test_methods_with_peculiar_needs_learn(method, small_problem, tmp_path):
    """State per row, a third output, a radius and clipping all pass through the shared loop."""
    setting = SETTINGS[method]
    job = make_job(
        tmp_path,
        method=method,
        epochs=10,
        schedule=setting.schedule,
        learning_rate=setting.learning_rate,
    )
    setup = make_setup(method, prior=0.0, rows=300)
    params, history = rotated_mnist_jobs.fit(
        job, setup, small_problem, None, tmp_path / "c", lambda amount: None
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert history.scores[-1, 1] < history.scores[0, 1]


def test_the_prior_acts_by_its_size_and_not_at_the_small_learning_rate(small_problem, tmp_path):
    """At rates this small the decay of lambda 0.1 is 5e-6 of the weights; a huge one is not."""

    def scores(prior):
        job = make_job(tmp_path, prior=prior)
        setup = make_setup("fisher8", prior=prior, rows=300)
        folder = tmp_path / str(prior)
        _, history = rotated_mnist_jobs.fit(
            job, setup, small_problem, None, folder, lambda amount: None
        )
        return history.scores[-1]

    without = scores(0.0)
    np.testing.assert_allclose(scores(0.1), without, rtol=1e-3)
    assert not np.allclose(scores(1e6), without, rtol=1e-3)


def test_interrupted_training_ends_with_the_same_numbers(small_problem, tmp_path):
    setup = make_setup("trustable", prior=0.0, rows=300)
    job = make_job(tmp_path, method="trustable", epochs=3, learning_rate=1e-2)

    def run(folder, report=lambda amount: None):
        return rotated_mnist_jobs.fit(job, setup, small_problem, None, folder, report)

    whole, whole_history = run(tmp_path / "whole")

    def interrupt(amount, calls=[]):  # noqa: B006
        calls.append(amount)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", interrupt)
    resumed_epochs = []
    resumed, resumed_history = run(tmp_path / "broken", resumed_epochs.append)
    assert resumed_epochs in ([1, 1, 1], [2, 1])  # the last state may have been on its way
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole_history.scores, resumed_history.scores)
    assert not (tmp_path / "broken").exists()


def test_long_trainings_record_feature_accuracy_on_the_way(small_problem, tmp_path, monkeypatch):
    monkeypatch.setattr(rotated_mnist_jobs, "CURVE_EPOCHS", 2)
    monkeypatch.setattr(rotated_mnist_jobs, "CURVE_ROWS", 200)
    monkeypatch.setattr(rotated_mnist_jobs, "load_problem", lambda *names: small_problem)
    job = make_job(tmp_path)
    rotated_mnist_jobs.run_job(job, lambda amount: None)
    result = Store(tmp_path / "results").read(job.cell, job.spec)
    setup = make_setup("fisher8", prior=0.0, rows=300)
    folder = tmp_path / "again"
    params, history = rotated_mnist_jobs.fit(
        job, setup, small_problem, None, folder, lambda amount: None
    )
    last = rotated_mnist_jobs.probe("fisher8", params, small_problem, rows=200)
    assert result["history"]["features"] == history.features.tolist()
    assert result["history"]["features"][-1] == last
    assert last != result["feature_accuracy"]  # that one learns from all rows


def test_the_untrained_network_is_looked_at_once(small_problem, tmp_path, monkeypatch):
    monkeypatch.setattr(rotated_mnist_jobs, "CURVE_ROWS", 200)
    monkeypatch.setattr(rotated_mnist_jobs, "load_problem", lambda *names: small_problem)
    job = make_job(tmp_path, method="untrained", epochs=0)
    rotated_mnist_jobs.run_job(job, lambda amount: None)
    result = Store(tmp_path / "results").read(job.cell, job.spec)
    history = result["history"]
    assert (history["epoch"], history["loss"]) == ([0], [])
    assert history["scores"] == [[result["rmse"], result["nll"], result["ece"]]]
    assert 10 < history["features"][0] < result["feature_accuracy"]


def test_the_network_recipe_is_the_libraries_default(small_problem, tmp_path):
    """Its steps are those of `network_gradient` and `network_optimizer`, partial batch masked."""
    job = make_job(tmp_path, method="network_recipe", learning_rate=1.0, epochs=1)
    setup = make_setup("network_recipe", prior=0.0, rows=300, epochs=1)
    assert rotated_mnist_jobs.BATCH == 512  # one batch of 300 rows, filled up
    trained, history = rotated_mnist_jobs.fit(
        job, setup, small_problem, None, tmp_path / "c", lambda amount: None
    )
    params = jax.tree.map(
        jnp.asarray, setup.network.init(generator("rotated_mnist", 1, "init"), 64)
    )

    def predict_one(params, x):
        return Gaussian(*setup.network.forward(params, None, x)[0])

    order = rotated_mnist_jobs.epoch_schedule(job, 300, 0).rows[0, 0, :300]
    inputs, targets = small_problem.train.inputs[order], small_problem.train_targets[order]
    optimizer = network_optimizer(1, average=None)
    found = jax.jit(
        lambda p: network_gradient(
            predict_one, p, jnp.asarray(inputs), jnp.asarray(targets), damping=0.3
        )
    )(params)
    updates, _ = optimizer.update(
        found.gradient, optimizer.init(params), params, step_kl=found.step_kl
    )
    expected = optax.apply_updates(params, updates)
    for ours, leaf in zip(jax.tree.leaves(trained), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, leaf, atol=2e-4)
    assert np.isfinite(history.scores).all()


def test_prior_is_chosen_by_the_held_out_part(small_problem, tmp_path, monkeypatch):
    job = make_job(tmp_path, method="beta_nll", prior=None)
    losses = dict(
        zip(PRIOR_GRID, [3.0, float("nan"), 2.0, 1.0, float("inf"), 4.0, 5.0], strict=True)
    )
    asked = []

    def trial(job, problem, prior, train_rows, validation_rows, report):
        assert len(train_rows) == 270
        assert sorted([*train_rows, *validation_rows]) == list(range(300))
        asked.append(prior)
        return losses[prior]

    monkeypatch.setattr(rotated_mnist_jobs, "_trial", trial)
    assert rotated_mnist_jobs.choose_prior(job, small_problem, None) == 10.0
    assert asked == list(PRIOR_GRID)
    # What was tried is stored: nothing is trained again.
    assert rotated_mnist_jobs.choose_prior(job, small_problem, None) == 10.0
    assert len(asked) == len(PRIOR_GRID)


def test_trial_trains_with_its_prior_and_scores_the_held_out_rows(small_problem, tmp_path):
    job = make_job(tmp_path, method="beta_nll", epochs=1, learning_rate=0.1, prior=None)
    rows, quiet = np.arange(300), lambda amount: None

    def trial(prior):
        return rotated_mnist_jobs._trial(job, small_problem, prior, rows[30:], rows[:30], quiet)

    setup = make_setup("beta_nll", prior=1.0, rows=270)
    params, _ = rotated_mnist_jobs.fit(
        job, setup, small_problem, rows[30:], tmp_path / "again", quiet
    )
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    hidden = small_problem.train.inputs[:30]
    for layer in params["trunk"]:
        hidden = np.maximum(hidden @ layer["w"] + layer["b"], 0)
    mean, raw = (hidden @ params["head"]["w"] + params["head"]["b"]).T * 1.0
    std = np.sqrt(np.logaddexp(raw, 0) + 1e-8)
    noisy, scale = small_problem.train.noisy[:30], small_problem.scale
    expected = -stats.norm.logpdf(noisy, mean * scale, std * scale).mean()
    assert trial(1.0) == pytest.approx(expected, rel=1e-4)
    assert trial(1000.0) != pytest.approx(expected, rel=5e-4)


def parse(*words):
    parser = argparse.ArgumentParser()
    rotated_mnist.add_arguments(parser)
    return parser.parse_args(words)


def test_jobs_of_the_presets(tmp_path):
    quick = rotated_mnist.make_jobs(parse("--scratch", str(tmp_path)), "mnist")
    assert len(quick) == len(SETTINGS) * 2 * 2
    by_method = {job.method: job for job in quick}
    # Compression keeps the sum of the rates; rates at the limit of stability are kept.
    assert by_method["fisher8"].rate_factor * PRESETS["quick"].epochs == 500
    assert by_method["beta_nll"].rate_factor == 1
    assert by_method["untrained"].epochs == 0
    full = rotated_mnist.make_jobs(parse("--preset", "full", "--scratch", str(tmp_path)), "mnist")
    assert len(full) == len(SETTINGS) * 2 * 5
    by_method = {job.method: job for job in full}
    assert by_method["beta_nll"].prior is None
    assert by_method["beta_nll"].trainings == 8
    assert by_method["fisher8"].prior == 0
    assert len({job.cell for job in quick + full}) == len(quick) + len(full) - 2 * 2
    with pytest.raises(ValueError, match="`--methods` has no 'adam'"):
        rotated_mnist.make_jobs(parse("--methods", "adam"), "mnist")


def test_command_runs_stores_and_prints(tmp_path, capsys, monkeypatch, small_problem):
    monkeypatch.setattr(rotated_mnist_jobs, "load_problem", lambda *names: small_problem)
    options = "--images digits --methods fisher8 untrained --regimes independent --seeds 1"
    folders = ["--results", str(tmp_path / "r"), "--scratch", str(tmp_path / "s")]
    args = parse(*options.split(), "--epochs", "1", "--workers", "1", *folders)
    assert rotated_mnist.run(args) == 0
    printed = capsys.readouterr().out
    assert "not MNIST" in printed
    assert "Untrained network" in printed
    cells = list(Store(tmp_path / "r").cells("rotated_mnist"))
    assert len(cells) == 2
    trained = next(cell for cell in cells if cell["spec"]["method"] == "fisher8")
    assert 0 < trained["result"]["feature_accuracy"] <= 100
    assert trained["result"]["rmse"] > 0


def test_bad_data_directory_is_a_message(tmp_path, capsys):
    assert main(["rotated_mnist", "--data-dir", str(tmp_path / "none")]) == 1
    assert "must name an existing folder" in capsys.readouterr().err


def test_probe_of_a_diverged_network_is_not_a_number(small_problem):
    setup = make_setup("fisher8", prior=0.0, rows=10)
    params = setup.network.init(np.random.default_rng(0), 64)
    params["trunk"][0]["w"][:] = np.nan
    assert math.isnan(rotated_mnist_jobs.probe("fisher8", params, small_problem))


def test_collier_predicts_with_its_temperature(tmp_path, monkeypatch):
    from benchmarks.experiments.rotated_mnist import networks as rotated_mnist_networks

    monkeypatch.setitem(rotated_mnist_networks.HYPERPARAMETERS, "collier", {"temperature": 4.0})
    head = rotated_mnist_networks.predictive_head(types.SimpleNamespace(method="collier"))
    latent = Gaussian(jnp.zeros(1), jnp.log(jnp.full(1, 9.0)))
    assert float(head(latent).std[0]) == pytest.approx(5.0)
