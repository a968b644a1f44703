"""The weak-lensing benchmark: simulator, loader, network, schedule, devices, resuming, scores."""

import argparse
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

from benchmarks import weak_lensing, weak_lensing_jobs, weak_lensing_report
from benchmarks.data_dir import DataUnavailableError
from benchmarks.document import to_markdown
from benchmarks.store import Store
from benchmarks.training import Batch
from benchmarks.weak_lensing_batches import (
    Inputs,
    batch_sharding,
    epoch_numbers,
    make_batch,
    prefetch,
    replicated,
)
from benchmarks.weak_lensing_data import (
    PREFIX,
    Maps,
    measure_scales,
    noise_std,
    open_survey,
    split_survey,
)
from benchmarks.weak_lensing_network import Cnn
from benchmarks.weak_lensing_plan import Budget, Job
from benchmarks.weak_lensing_simulator import (
    SHIFT,
    Simulation,
    convergence_spectrum,
    draw_map,
    simulate,
)
from fisher8_jax import Gaussian

FIDUCIAL = np.array([0.29, 0.81, 7.8, 0.013, 0.0])
SMALL = Simulation(height=32, width=32, cosmologies=4, realisations=10)


@pytest.fixture(autouse=True)
def float32():
    """Benchmarks run in JAX's default precision."""
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return simulate(SMALL, tmp_path_factory.mktemp("maps"))


def make_job(folder, tmp_path, **fields):
    values = {
        "maps": "simulated",
        "method": "fisher8",
        "seed": 0,
        "galaxies": 1000.0,
        "budget": Budget(3, 8, 1e-2, 12, 40),
        "channels": (2, 3, 4, 4),
        "dense": (8, 6),
        "folder": folder,
        "size": SMALL.name,
        "results": tmp_path / "results",
        "scratch": tmp_path / "scratch",
    }
    return Job(**{**values, **fields})


# The simulator.


def test_maps_are_log_normal_with_the_asked_spectrum():
    """The variance of the map is the integral of its spectrum under the pixel's window."""
    maps = np.stack([draw_map(FIDUCIAL, (64, 64), np.random.default_rng(k)) for k in range(40)])
    pixel = math.radians(2 / 60)
    frequency = 2 * np.pi * np.fft.fftfreq(128, pixel)
    row, column = frequency[:, None], frequency[None, :]
    ell = np.hypot(row, column)
    ell[0, 0] = ell[0, 1]
    window = np.sinc(row * pixel / (2 * np.pi)) * np.sinc(column * pixel / (2 * np.pi))
    power = convergence_spectrum(ell, FIDUCIAL) * window**2
    power[0, 0] = 0
    expected = power.sum() / (128 * pixel) ** 2
    assert np.mean(maps**2) == pytest.approx(expected, rel=0.1)
    assert abs(maps.mean()) < 3e-4
    assert maps.min() > -SHIFT
    # A logarithm makes it Gaussian again.
    field = np.log1p(maps / SHIFT)
    skewness = np.mean((field - field.mean()) ** 3) / field.std() ** 3
    assert abs(skewness) < 0.1
    assert np.mean(maps**3) / np.mean(maps**2) ** 1.5 > 0.4


def test_spectrum_depends_on_every_parameter_as_it_should():
    ell = np.array([100.0, 1000.0, 5000.0])
    base = convergence_spectrum(ell, FIDUCIAL)

    def ratio(**changes):
        label = FIDUCIAL.copy()
        for name, value in changes.items():
            label[("omega_m", "s8", "t_agn", "f0", "delta_z").index(name)] = value
        return convergence_spectrum(ell, label) / base

    # Linear theory: the power is proportional to the square of S8.
    np.testing.assert_allclose(ratio(s8=0.9), (0.9 / 0.81) ** 2, rtol=1e-10)
    hot = ratio(t_agn=8.5)
    assert np.all(hot < 1)
    assert hot[2] < hot[0]
    assert np.all(ratio(delta_z=0.05) > 1)
    assert np.all(ratio(f0=0.0) < 1)
    shape = ratio(omega_m=0.4)
    assert shape[2] > shape[0]


def test_simulation_has_the_challenge_s_files(folder):
    labels = np.load(folder / "label.npy")
    mask = np.load(folder / f"{PREFIX}_mask.npy")
    maps = np.load(folder / f"{PREFIX}_kappa.npy", mmap_mode="r")
    assert labels.shape == (4, 10, 5)
    assert mask.dtype == bool
    assert 0.3 < mask.mean() < 0.8
    assert maps.dtype == np.float16
    assert maps.shape == (4, 10, mask.sum())
    assert np.ptp(labels[..., :2], axis=1).max() == 0
    assert np.ptp(labels[..., 2:], axis=1).min() > 0
    assert json.loads((folder / "simulated.json").read_text())["simulated"] is True


def test_simulation_is_made_once(folder):
    before = (folder / f"{PREFIX}_kappa.npy").stat().st_mtime_ns
    assert simulate(SMALL, folder.parent) == folder
    assert (folder / f"{PREFIX}_kappa.npy").stat().st_mtime_ns == before


# The loader.


def test_pixels_are_scattered_in_the_order_of_the_mask(folder):
    survey = open_survey(folder)
    quiet = Maps(survey, galaxies=math.inf)
    image = quiet.image(13)
    np.testing.assert_array_equal(image[survey.mask], survey.maps[1, 3].astype(np.float32))
    assert np.all(image[~survey.mask] == 0)
    np.testing.assert_array_equal(quiet.targets(np.array([13]))[0], survey.labels[1, 3])


def test_noise_is_the_survey_s_and_fixed(folder):
    survey = open_survey(folder)
    assert noise_std(30.0) == pytest.approx(0.02582, abs=1e-5)
    noisy, again = Maps(survey, 30.0), Maps(survey, 30.0)
    quiet = Maps(survey, math.inf)
    noise = np.stack([noisy.image(k) - quiet.image(k) for k in range(40)])
    assert noise[:, survey.mask].std() == pytest.approx(0.02582, rel=0.02)
    assert np.all(noise[:, ~survey.mask] == 0)
    np.testing.assert_array_equal(noisy.image(5), again.image(5))
    assert abs(np.corrcoef(noise[0][survey.mask], noise[1][survey.mask])[0, 1]) < 0.2


def test_split_is_by_realisation(folder):
    survey = open_survey(folder)
    split = split_survey(survey)
    parts = [set(part % 10) for part in split]
    assert [len(part) for part in parts] == [5, 2, 3]
    assert set.union(*parts) == set(range(10))
    for part in split:
        assert set(part // 10) == set(range(4))
    # The challenge: 256 realisations give 143, 36 and 77 of them.
    wide = survey._replace(maps=np.empty((101, 256, 0)))
    assert [len(part) for part in split_survey(wide)] == [14_443, 3_636, 7_777]


def test_standardisation_is_by_the_training_part(folder):
    survey = open_survey(folder)
    split = split_survey(survey)
    scales = measure_scales(survey, 30.0, split.train)
    raw = Maps(survey, 30.0).images(split.train)
    assert scales.pixel_shift == pytest.approx(raw.mean(), abs=1e-6)
    assert scales.pixel_scale == pytest.approx(raw.std(), rel=1e-4)
    images = Maps(survey, 30.0, scales).images(split.train)
    assert images.mean() == pytest.approx(0, abs=1e-4)
    assert images.std() == pytest.approx(1, rel=1e-4)
    targets = survey.labels.reshape(-1, 2)[split.train]
    np.testing.assert_allclose(scales.target_shift, targets.mean(axis=0))
    np.testing.assert_allclose(scales.target_scale, targets.std(axis=0))


def test_wrong_files_are_named(folder, tmp_path):
    with pytest.raises(DataUnavailableError, match=r"must hold 'label\.npy'"):
        open_survey(tmp_path)
    np.save(tmp_path / "label.npy", np.load(folder / "label.npy")[:3])
    for name in (f"{PREFIX}_mask.npy", f"{PREFIX}_kappa.npy"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(DataUnavailableError, match=r"must have the shape \(3, 10, "):
        open_survey(tmp_path)


# Batches.


def test_batches_cover_an_epoch_and_are_padded(folder):
    survey = open_survey(folder)
    split = split_survey(survey)
    scales = measure_scales(survey, 30.0, split.train)
    batches = epoch_numbers(np.random.default_rng(0), split.train, 8)
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert sorted(np.concatenate(batches)) == sorted(split.train)
    batch = make_batch(Maps(survey, 30.0, scales), scales, batches[-1], 8)
    assert batch.inputs.images.shape == (8, 32, 32, 1)
    assert batch.where[:, 0].tolist() == [True] * 4 + [False] * 4
    np.testing.assert_allclose(
        batch.targets[:4] * scales.target_scale + scales.target_shift,
        survey.labels.reshape(-1, 2)[batches[-1]],
        rtol=1e-5,
    )


def test_prefetch_keeps_order_runs_ahead_and_raises():
    made = []

    def make(item):
        made.append(item)
        if item == 7:
            raise RuntimeError("no such map")
        return 10 * item

    iterator = prefetch(range(10), make, ahead=2)
    assert next(iterator) == 0
    deadline = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) >= 3
    assert [next(iterator) for _ in range(6)] == [10, 20, 30, 40, 50, 60]
    with pytest.raises(RuntimeError, match="no such map"):
        next(iterator)
    abandoned = prefetch(range(10**9), lambda item: item)
    assert next(abandoned) == 0
    abandoned.close()  # must not hang


# The network.


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
    params, statistics = Cnn(channels=(4, 4), dense=(64,), dropout=(0.1,)).init(0, (16, 16))
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
        return network.forward(params, statistics, inputs, key=key, train=True)

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


def test_severed_outputs_do_not_train_the_trunk():
    network = Cnn(channels=(3, 3), dense=(8,), dropout=(0.0,))
    params, statistics = network.init(0, (16, 16))
    inputs = Inputs(jnp.ones((2, 16, 16, 1)), jnp.ones(2, bool))

    def scale_sum(params):
        outputs, _ = network.forward(params, statistics, inputs, severed=True)
        return outputs[1].sum()

    gradient = jax.grad(scale_sum)(params)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient["trunk"]))
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(gradient["head"]))


# Training.


def random_batch(rng, size=8):
    images = rng.normal(size=(size, 32, 32, 1)).astype(np.float32)
    where = np.arange(size) < size - 1
    targets = rng.normal(size=(size, 2)).astype(np.float32)
    return Batch(Inputs(images, where), targets, np.arange(size), where[:, None])


@pytest.mark.parametrize("method", ["fisher8", "fisher8_radius"])
def test_eight_devices_give_the_step_of_one(method, folder, tmp_path):
    job = make_job(folder, tmp_path, method=method)
    recipe = weak_lensing_jobs.make_recipe(job)
    data = weak_lensing_jobs.prepare(folder, 1000.0)
    batch = random_batch(np.random.default_rng(0))

    def step(sharding: NamedSharding):
        leaves = weak_lensing_jobs._start(job, recipe, data).leaves
        leaves = jax.device_put(leaves, replicated(sharding))
        placed = jax.device_put(batch, sharding)
        lane = weak_lensing_jobs.draw_lane(job)
        leaves, loss = weak_lensing_jobs._update(
            recipe, leaves, lane, placed, np.float32(1), np.int32(0)
        )
        return leaves[:2], loss

    everywhere = batch_sharding(8)
    assert len(everywhere.device_set) == 8
    assert len(batch_sharding(6).device_set) == 6
    one = batch_sharding(8, jax.devices()[:1])
    (several, several_loss), (alone, alone_loss) = step(everywhere), step(one)
    assert float(several_loss) == pytest.approx(float(alone_loss), rel=1e-5)
    for a, b in zip(jax.tree.leaves(several), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_fisher8_has_one_norm_per_predicted_parameter(folder, tmp_path):
    """A step changes the output biases by the sum of four unit vectors, one per output."""
    job = make_job(folder, tmp_path)
    recipe = weak_lensing_jobs.make_recipe(job)
    data = weak_lensing_jobs.prepare(folder, 1000.0)
    rng = np.random.default_rng(1)
    batch = random_batch(rng)
    leaves = weak_lensing_jobs._start(job, recipe, data).leaves
    head = jax.tree.map(np.asarray, leaves[0]["head"])
    lane = weak_lensing_jobs.draw_lane(job)
    key = jax.random.fold_in(lane.key, 0)
    (mean, log_variance), _ = recipe.network.forward(
        leaves[0], leaves[1], batch.inputs, key=key, train=True
    )
    count = batch.inputs.where
    residual = (np.asarray(mean) - batch.targets)[count]
    scale = 1 - np.exp(-np.asarray(log_variance))[count] * residual**2
    unit = [column / np.linalg.norm(column) for column in (*residual.T, *scale.T)]
    expected = head["Dense_0"]["bias"] - 1e-2 * np.array([column.sum() for column in unit])
    new, _ = weak_lensing_jobs._update(recipe, leaves, lane, batch, np.float32(1), np.int32(0))
    np.testing.assert_allclose(new[0]["head"]["Dense_0"]["bias"], expected, atol=1e-6)


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
    tables = json.loads((weak_lensing.DEFAULT_RESULTS.parent / "paper/tables.json").read_text())
    for row in tables["weak_lensing"]:
        value = {name: row[name]["mean"] for name in result}
        nll = value["nll_omega_m"] + value["nll_s8"]
        squares = value["rmse_omega_m"] ** 2 + value["rmse_s8"] ** 2
        expected = -2 * (nll - math.log(2 * math.pi)) - 1000 * squares
        assert value["score"] == pytest.approx(expected, abs=0.05)


def test_interrupted_training_ends_with_the_same_numbers(folder, tmp_path):
    job = make_job(folder, tmp_path)
    recipe = weak_lensing_jobs.make_recipe(job)
    data = weak_lensing_jobs.prepare(folder, 1000.0)
    whole, epochs = weak_lensing_jobs.fit(job, recipe, data, lambda amount: None)
    assert epochs == 3

    def interrupt(amount, calls=[]):  # noqa: B006
        calls.append(amount)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weak_lensing_jobs.fit(job, recipe, data, interrupt)
    seen = []
    resumed, epochs = weak_lensing_jobs.fit(job, recipe, data, seen.append)
    assert seen[0] in (1, 2)  # the last checkpoint may have been on its way
    assert epochs == 3
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_best_state_is_kept_and_training_stops_early(folder, tmp_path, monkeypatch):
    job = make_job(folder, tmp_path, budget=Budget(20, 8, 1e-2, 1, 2))
    recipe = weak_lensing_jobs.make_recipe(job)
    data = weak_lensing_jobs.prepare(folder, 1000.0)
    scores = iter([5.0, 6.0, 1.0, 1.0, 1.0])
    kept = []

    def scripted(dist, targets):
        return jnp.asarray([next(scores)])

    monkeypatch.setattr(weak_lensing_jobs, "weak_lensing_score", scripted)
    epoch_of = weak_lensing_jobs.train_epoch

    def watched(*args):
        progress = epoch_of(*args)
        kept.append(jax.tree.map(np.asarray, progress.leaves[0]["head"]))
        return progress

    monkeypatch.setattr(weak_lensing_jobs, "train_epoch", watched)
    progress, epochs = weak_lensing_jobs.fit(job, recipe, data, lambda amount: None)
    assert epochs == 4
    best = jax.tree.leaves(progress.best[0]["head"])
    for a, b in zip(best, jax.tree.leaves(kept[1]), strict=True):
        np.testing.assert_array_equal(a, b)


# The command.


def parse(*words):
    parser = argparse.ArgumentParser()
    weak_lensing.add_arguments(parser)
    return parser.parse_args(words)


def test_one_flag_switches_to_the_challenge_s_files(folder, tmp_path):
    (tmp_path / "weak_lensing").symlink_to(folder)
    options = ["--data-dir", str(tmp_path), "--preset", "full", "--seeds", "3"]
    jobs = weak_lensing.make_jobs(parse("--maps", "challenge", *options))
    assert [job.method for job in jobs] == ["nll", "beta_nll", "faithful", "fisher8"]
    assert jobs[0].folder == tmp_path / "weak_lensing"
    assert jobs[0].galaxies == 30
    assert jobs[0].cell == "weak_lensing/challenge-32x32x4x10/nll-seed3"
    assert jobs[0].budget.learning_rate == 1e-3


def test_challenge_without_data_is_a_message(capsys, monkeypatch):
    monkeypatch.delenv("FISHER8_DATA", raising=False)
    assert weak_lensing.run(parse("--maps", "challenge")) == 1
    assert "`--maps challenge` needs `--data-dir`" in capsys.readouterr().out


def test_simulation_of_the_real_size_takes_the_real_mask(tmp_path, folder):
    (tmp_path / "weak_lensing").mkdir()
    mask = np.zeros((1424, 176), bool)
    mask[3, 4] = True
    np.save(tmp_path / "weak_lensing" / f"{PREFIX}_mask.npy", mask)
    args = parse("--data-dir", str(tmp_path))
    found = weak_lensing._real_mask(args, Simulation(1424, 176))
    np.testing.assert_array_equal(found, mask)
    assert weak_lensing._real_mask(args, SMALL) is None


def test_report_keeps_simulated_and_real_maps_apart(folder, tmp_path):
    store = Store(tmp_path)
    assert weak_lensing_report.section(store) is None
    assert weak_lensing_report.figure(store) is None
    metrics = dict.fromkeys(weak_lensing_report.METRICS, 0.5)
    for maps, seed, score in (("simulated", 0, 1.0), ("simulated", 1, 3.0), ("challenge", 0, 8.0)):
        job = make_job(folder, tmp_path, maps=maps, seed=seed)
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
    assert len(weak_lensing_report.figure(store).axes) == 1


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
