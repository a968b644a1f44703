"""The weak-lensing benchmark: network, schedule, devices, resuming, scores, command."""

import argparse
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from benchmarks.__main__ import main
from benchmarks.experiments.weak_lensing import command as weak_lensing
from benchmarks.experiments.weak_lensing import jobs as weak_lensing_jobs
from benchmarks.experiments.weak_lensing import report as weak_lensing_report
from benchmarks.experiments.weak_lensing.batches import (
    Inputs,
    batch_sharding,
    replicated,
)
from benchmarks.experiments.weak_lensing.data import (
    PREFIX,
)
from benchmarks.experiments.weak_lensing.network import Cnn
from benchmarks.experiments.weak_lensing.plan import Budget, Job
from benchmarks.experiments.weak_lensing.score import weak_lensing_score
from benchmarks.experiments.weak_lensing.simulator import (
    Simulation,
)
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.figures import style
from benchmarks.machinery.step import Batch
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, metrics
from tests.benchmarks.conftest import SMALL_SURVEY

pytestmark = pytest.mark.usefixtures("float32")


def make_job(survey_folder, tmp_path, **fields):
    values = {
        "maps": "simulated",
        "method": "fisher8",
        "seed": 0,
        "galaxies": 1000.0,
        "budget": Budget(3, 8, 1e-2, 12, 40),
        "channels": (2, 3),
        "dense": (6,),
        "folder": survey_folder,
        "size": SMALL_SURVEY.name,
        "results": tmp_path / "results",
        "scratch": tmp_path / "scratch",
    }
    return Job(**{**values, **fields})


# The simulator.


def test_network_has_the_kit_s_size():
    """14.58 million parameters, counted by hand from the kit's layers; nothing is allocated."""
    shapes = jax.eval_shape(lambda: Cnn().init(0, (1424, 176)))
    sizes = [leaf.size for leaf in jax.tree.leaves(shapes[0])]
    convolutions = (25 * 16 + 16) + (9 * 16 * 32 + 32) + (9 * 32 * 64 + 64) + (9 * 64 * 128 + 128)
    norms = 2 * (16 + 32 + 64 + 128)
    dense = (28_160 * 512 + 512) + (512 * 128 + 128) + (128 * 4 + 4)
    assert sum(sizes) == convolutions + norms + dense
    assert 14.57e6 < sum(sizes) < 14.59e6


def test_initial_weights_are_those_of_pytorch():
    network = Cnn(channels=(4, 4), dense=(64,), dropout=(0.1,))
    params, statistics = jax.jit(lambda: network.init(0, (16, 16)))()
    layer = params["trunk"]["Conv_1"]
    bound = 1 / math.sqrt(9 * 4)
    for leaf in (layer["kernel"], layer["bias"]):
        assert np.abs(leaf).max() <= bound
    assert np.abs(layer["kernel"]).max() > 0.9 * bound
    assert np.asarray(layer["kernel"]).std() == pytest.approx(bound / math.sqrt(3), rel=0.15)
    assert all((leaf == 1).all() or (leaf == 0).all() for leaf in jax.tree.leaves(statistics))


def test_padding_does_not_enter_the_batch_statistics():
    network = Cnn(channels=(3, 3), dense=(8,), dropout=(0.0,))
    params, statistics = network.init(0, (16, 16))
    images = np.random.default_rng(0).normal(size=(6, 16, 16, 1)).astype(np.float32)
    key = jax.random.key(0)

    def forward(images, where):
        inputs = Inputs(jnp.asarray(images), jnp.asarray(where))
        return jax.jit(functools.partial(network.forward, train=True))(
            params, statistics, inputs, key=key
        )

    outputs, changed = forward(images[:4], np.ones(4, bool))
    padded, padded_changed = forward(
        np.concatenate([images[:4], 100 * images[4:]]), np.arange(6) < 4
    )
    np.testing.assert_allclose(padded[0][:4], outputs[0], atol=1e-5)
    for a, b in zip(jax.tree.leaves(changed), jax.tree.leaves(padded_changed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    # Running statistics move a tenth of the way.
    moved = changed["BatchNorm_0"]["var"]
    assert not np.allclose(moved, 1)
    assert np.all(np.abs(moved - 1) < 0.3)


def test_stop_gradient_outputs_do_not_train_the_trunk():
    network = Cnn(channels=(3, 3), dense=(8,), dropout=(0.0,))
    params, statistics = network.init(0, (16, 16))
    inputs = Inputs(jnp.ones((2, 16, 16, 1)), jnp.ones(2, bool))

    def scale_sum(params):
        outputs, _ = network.forward(params, statistics, inputs, stop_gradient=True)
        return outputs[1].sum()

    gradient = jax.grad(scale_sum)(params)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient["trunk"]))
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(gradient["head"]))


# Training.


def random_batch(rng, size=8):
    images = rng.normal(size=(size, 32, 32, 1)).astype(np.float32)
    where = np.arange(size) < size - 1
    targets = rng.normal(size=(size, 2)).astype(np.float32)
    return Batch(Inputs(images, where), targets, where[:, None])


@pytest.mark.parametrize("method", ["fisher8", "fisher8_radius"])
def test_eight_devices_give_the_step_of_one(method, survey_folder, tmp_path):
    job = make_job(survey_folder, tmp_path, method=method)
    setup = weak_lensing_jobs.make_setup(job)
    data = weak_lensing_jobs.prepare(survey_folder, 1000.0)
    batch = random_batch(np.random.default_rng(0))

    def step(sharding: NamedSharding):
        state = weak_lensing_jobs._start(job, setup, data).state
        state = jax.device_put(state, replicated(sharding))
        placed = jax.device_put(batch, sharding)
        run = weak_lensing_jobs.draw_run(job)
        state, loss = weak_lensing_jobs._update(setup, state, run, placed, np.float32(1))
        return (state.params, state.variables), loss

    everywhere = batch_sharding(8)
    assert len(everywhere.device_set) == 8
    assert len(batch_sharding(6).device_set) == 6
    one = batch_sharding(8, jax.devices()[:1])
    (several, several_loss), (alone, alone_loss) = step(everywhere), step(one)
    assert float(several_loss) == pytest.approx(float(alone_loss), rel=1e-5)
    for a, b in zip(jax.tree.leaves(several), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_fisher8_has_one_norm_per_predicted_parameter(survey_folder, tmp_path):
    """A step changes the output biases by the sum of four unit vectors, one per output."""
    job = make_job(survey_folder, tmp_path)
    setup = weak_lensing_jobs.make_setup(job)
    data = weak_lensing_jobs.prepare(survey_folder, 1000.0)
    rng = np.random.default_rng(1)
    batch = random_batch(rng)
    state = weak_lensing_jobs._start(job, setup, data).state
    head = jax.tree.map(np.asarray, state.params["head"])
    run = weak_lensing_jobs.draw_run(job)
    key = jax.random.fold_in(run.key, 0)
    forward = jax.jit(functools.partial(setup.network.forward, train=True))
    (mean, log_variance), _ = forward(state.params, state.variables, batch.inputs, key=key)
    count = batch.inputs.where
    residual = (np.asarray(mean) - batch.targets)[count]
    scale = 1 - np.exp(-np.asarray(log_variance))[count] * residual**2
    unit = [column / np.linalg.norm(column) for column in (*residual.T, *scale.T)]
    expected = head["Dense_0"]["bias"] - 1e-2 * np.array([column.sum() for column in unit])
    new, _ = weak_lensing_jobs._update(setup, state, run, batch, np.float32(1))
    np.testing.assert_allclose(new.params["head"]["Dense_0"]["bias"], expected, atol=1e-6)


def test_plateau_follows_pytorch():
    """Scores and rates as ReduceLROnPlateau(mode max, factor 0.5, patience 2) gives them."""
    budget = Budget(100, 32, 0.8, rate_patience=2, stop_patience=5, min_rate=0.3)
    plateau = weak_lensing_jobs._start_plateau(budget)
    rates, ended = [], []
    for score in (1.0, 2.0, 2.0, 2.0001, float("nan"), 1.0, 1.0, 1.0, 3.0):
        plateau = weak_lensing_jobs.advance(budget, plateau, score)
        rates.append(float(plateau.rate))
        ended.append(weak_lensing_jobs.has_ended(budget, plateau))
    # Bad epochs exceed the patience at the fifth score and again at the eighth; 0.3 is the floor.
    assert rates == [0.8, 0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.3, 0.3]
    assert ended == [False] * 6 + [True, True, False]
    assert float(plateau.best) == 3.0


def test_score_identity():
    """The challenge's score from NLL (with constant) and RMSE of both parameters."""
    rng = np.random.default_rng(0)
    targets = jnp.asarray(rng.normal(0.5, 0.1, (500, 2)), jnp.float32)
    mean = targets + jnp.asarray(rng.normal(0, 0.04, (500, 2)), jnp.float32)
    log_variance = jnp.asarray(rng.normal(-6.4, 0.3, (500, 2)), jnp.float32)
    result = weak_lensing_jobs.scores(Gaussian(mean, log_variance), targets)
    nll = result["nll_omega_m"] + result["nll_s8"]
    squares = result["rmse_omega_m"] ** 2 + result["rmse_s8"] ** 2
    expected = -2 * (nll - math.log(2 * math.pi)) - 1000 * squares
    assert result["score"] == pytest.approx(expected, rel=1e-5)
    inside = np.abs(targets - mean) <= np.exp(log_variance / 2)
    assert result["coverage68_s8"] == pytest.approx(float(inside[:, 1].mean()), abs=1e-6)
    # The published rows obey it to the rounding of their figures.
    tables = json.loads((DEFAULT_RESULTS.parent / "paper/tables.json").read_text())
    for row in tables["weak_lensing"]:
        value = {name: row[name]["mean"] for name in result}
        nll = value["nll_omega_m"] + value["nll_s8"]
        squares = value["rmse_omega_m"] ** 2 + value["rmse_s8"] ** 2
        expected = -2 * (nll - math.log(2 * math.pi)) - 1000 * squares
        assert value["score"] == pytest.approx(expected, abs=0.05)


def test_interrupted_training_ends_with_the_same_numbers(survey_folder, tmp_path):
    job = make_job(survey_folder, tmp_path)
    setup = weak_lensing_jobs.make_setup(job)
    data = weak_lensing_jobs.prepare(survey_folder, 1000.0)
    whole, epochs = weak_lensing_jobs.fit(job, setup, data, lambda amount: None)
    assert epochs == 3

    def interrupt(amount, calls=[]):  # noqa: B006
        calls.append(amount)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weak_lensing_jobs.fit(job, setup, data, interrupt)
    seen = []
    resumed, epochs = weak_lensing_jobs.fit(job, setup, data, seen.append)
    assert seen[0] in (1, 2)  # the last checkpoint may have been on its way
    assert epochs == 3
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_best_state_is_kept_and_training_stops_early(survey_folder, tmp_path, monkeypatch):
    job = make_job(survey_folder, tmp_path, budget=Budget(20, 8, 1e-2, 1, 2))
    setup = weak_lensing_jobs.make_setup(job)
    data = weak_lensing_jobs.prepare(survey_folder, 1000.0)
    scores = iter([5.0, 6.0, 1.0, 1.0, 1.0])
    kept = []

    def scripted(dist, targets):
        return jnp.asarray([next(scores)])

    monkeypatch.setattr(weak_lensing_jobs, "weak_lensing_score", scripted)
    epoch_of = weak_lensing_jobs.train_epoch

    def watched(*args):
        progress = epoch_of(*args)
        kept.append(jax.tree.map(np.asarray, progress.state.params["head"]))
        return progress

    monkeypatch.setattr(weak_lensing_jobs, "train_epoch", watched)
    progress, epochs = weak_lensing_jobs.fit(job, setup, data, lambda amount: None)
    assert epochs == 4
    best = jax.tree.leaves(progress.best[0]["head"])
    for a, b in zip(best, jax.tree.leaves(kept[1]), strict=True):
        np.testing.assert_array_equal(a, b)


# The command.


def parse(*words):
    parser = argparse.ArgumentParser()
    weak_lensing.add_arguments(parser)
    return parser.parse_args(words)


def test_one_flag_switches_to_the_challenge_s_files(survey_folder, tmp_path):
    (tmp_path / "weak_lensing").symlink_to(survey_folder)
    options = ["--data-dir", str(tmp_path), "--preset", "full", "--seeds", "3"]
    jobs = weak_lensing.make_jobs(parse("--maps", "challenge", *options))
    assert [job.method for job in jobs] == ["nll", "beta_nll", "faithful", "fisher8"]
    assert jobs[0].folder == tmp_path / "weak_lensing"
    assert jobs[0].galaxies == 30
    assert jobs[0].cell == "weak_lensing/challenge-32x32x4x10/nll-seed3"
    assert jobs[0].budget.learning_rate == 1e-3


def test_challenge_without_data_is_a_message(capsys, monkeypatch):
    monkeypatch.delenv("FISHER8_DATA", raising=False)
    assert main(["weak_lensing", "--maps", "challenge"]) == 1
    assert "`--maps challenge` needs `--data-dir`" in capsys.readouterr().err


def test_simulation_of_the_real_size_takes_the_real_mask(tmp_path, survey_folder):
    (tmp_path / "weak_lensing").mkdir()
    mask = np.zeros((1424, 176), bool)
    mask[3, 4] = True
    np.save(tmp_path / "weak_lensing" / f"{PREFIX}_mask.npy", mask)
    args = parse("--data-dir", str(tmp_path))
    found = weak_lensing._real_mask(args, Simulation(1424, 176))
    np.testing.assert_array_equal(found, mask)
    assert weak_lensing._real_mask(args, SMALL_SURVEY) is None


def test_report_keeps_simulated_and_real_maps_apart(survey_folder, tmp_path):
    store = Store(tmp_path)
    assert weak_lensing_report.section(store) is None
    assert weak_lensing_report.figure(store) is None
    metrics = dict.fromkeys(weak_lensing_report.METRICS, 0.5)
    for maps, seed, score in (("simulated", 0, 1.0), ("simulated", 1, 3.0), ("challenge", 0, 8.0)):
        job = make_job(survey_folder, tmp_path, maps=maps, seed=seed)
        result = {**metrics, "score": score, "epochs": 1, "history": [[1.0, score, None]]}
        store.write(job.cell, spec=job.spec, result=result, provenance={})
    real, simulated = weak_lensing_report.table_rows(store)
    assert simulated.mean[0] == 2
    assert simulated.std[0] == 1
    assert simulated.paper is None
    assert real.paper[0] == 8.528  # the published score of Fisher8
    text = to_markdown("", [weak_lensing_report.section(store)], None)
    assert "2.000 ± 1.000" in text
    assert text.count("| method |") == 2
    assert "8.000 (8.528)" in text
    with style():  # as the report draws it
        assert len(weak_lensing_report.figure(store).axes) == 1


def test_the_picture_of_maps_shows_three_cosmologies_and_what_a_network_sees():
    with style():
        *axes, scale = weak_lensing_report.maps_figure().axes
    images = [np.ma.filled(axis.images[0].get_array(), np.nan) for axis in axes]
    assert len(images) == 6
    contrast = [np.nanstd(image) for image in images[:3]]
    assert contrast == sorted(contrast)
    assert all(np.isnan(image).any() and np.isfinite(image).any() for image in images[3:])
    assert scale.get_ylim() == (-0.03, 0.03)


def run_command(tmp_path, name, **options):
    """The command in a process of its own, on maps that all runs of this test share."""
    words = "weak_lensing --size 32 32 4 10 --seeds 0 --methods fisher8 --epochs 8 --workers 1"
    folders = ["--scratch", str(tmp_path / name), "--results", str(tmp_path / name / "results")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks", *words.split(), *folders]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, **options)


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_result(tmp_path):
    assert run_command(tmp_path, "whole").wait() == 0
    process = run_command(tmp_path, "killed")
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 600
    while not list(checkpoints.glob("weak_lensing/*/*/2")) and time.monotonic() < deadline:
        assert process.poll() is None, "ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(Store(tmp_path / "killed" / "results").cells("weak_lensing"))
    assert run_command(tmp_path, "killed").wait() == 0
    results = [
        next(Store(tmp_path / name / "results").cells("weak_lensing"))["result"]
        for name in ("whole", "killed")
    ]
    assert results[0] == results[1]
    assert results[0]["epochs"] == 8


def test_score_agrees_with_the_published_identity():
    """The challenge's score from NLL and RMSE: -2 sum(NLL - 0.919) - 1000 sum(RMSE^2)."""
    rng = np.random.default_rng(0)
    mean, log_variance, targets = 0.05 * rng.normal(size=(3, 40, 2))
    dist, targets = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance) - 5), jnp.asarray(targets)
    expected = -2 * metrics.nll(dist, targets, constant=False).sum()
    expected -= 1000 * jnp.square(metrics.rmse(dist, targets)).sum()
    np.testing.assert_allclose(weak_lensing_score(dist, targets).sum(), expected, rtol=1e-5)
