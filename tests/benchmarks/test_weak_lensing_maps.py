"""The maps of the weak-lensing benchmark: simulator, files, noise, split, batches."""

import json
import math
import time

import numpy as np
import pytest

from benchmarks.experiments.weak_lensing.batches import (
    epoch_numbers,
    make_batch,
    prefetch,
)
from benchmarks.experiments.weak_lensing.data import (
    PREFIX,
    Maps,
    measure_scales,
    noise_std,
    open_survey,
    split_survey,
)
from benchmarks.experiments.weak_lensing.simulator import (
    SHIFT,
    convergence_spectrum,
    draw_map,
    simulate,
)
from benchmarks.machinery.data import DataUnavailableError
from tests.benchmarks.conftest import SMALL_SURVEY

FIDUCIAL = np.array([0.29, 0.81, 7.8, 0.013, 0.0])

pytestmark = pytest.mark.usefixtures("float32")


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


def test_simulation_has_the_challenge_s_files(survey_folder):
    labels = np.load(survey_folder / "label.npy")
    mask = np.load(survey_folder / f"{PREFIX}_mask.npy")
    maps = np.load(survey_folder / f"{PREFIX}_kappa.npy", mmap_mode="r")
    assert labels.shape == (4, 10, 5)
    assert mask.dtype == bool
    assert 0.3 < mask.mean() < 0.8
    assert maps.dtype == np.float16
    assert maps.shape == (4, 10, mask.sum())
    assert np.ptp(labels[..., :2], axis=1).max() == 0
    assert np.ptp(labels[..., 2:], axis=1).min() > 0
    assert json.loads((survey_folder / "simulated.json").read_text())["simulated"] is True


def test_simulation_is_made_once(survey_folder):
    before = (survey_folder / f"{PREFIX}_kappa.npy").stat().st_mtime_ns
    assert simulate(SMALL_SURVEY, survey_folder.parent) == survey_folder
    assert (survey_folder / f"{PREFIX}_kappa.npy").stat().st_mtime_ns == before


# The loader.


def test_pixels_are_scattered_in_the_order_of_the_mask(survey_folder):
    survey = open_survey(survey_folder)
    quiet = Maps(survey, galaxies=math.inf)
    image = quiet.image(13)
    np.testing.assert_array_equal(image[survey.mask], survey.maps[1, 3].astype(np.float32))
    assert np.all(image[~survey.mask] == 0)
    np.testing.assert_array_equal(quiet.targets(np.array([13]))[0], survey.labels[1, 3])


def test_noise_is_the_survey_s_and_fixed(survey_folder):
    survey = open_survey(survey_folder)
    assert noise_std(30.0) == pytest.approx(0.02582, abs=1e-5)
    noisy, again = Maps(survey, 30.0), Maps(survey, 30.0)
    quiet = Maps(survey, math.inf)
    noise = np.stack([noisy.image(k) - quiet.image(k) for k in range(40)])
    assert noise[:, survey.mask].std() == pytest.approx(0.02582, rel=0.02)
    assert np.all(noise[:, ~survey.mask] == 0)
    np.testing.assert_array_equal(noisy.image(5), again.image(5))
    assert abs(np.corrcoef(noise[0][survey.mask], noise[1][survey.mask])[0, 1]) < 0.2


def test_split_is_by_realisation(survey_folder):
    survey = open_survey(survey_folder)
    split = split_survey(survey)
    parts = [set(part % 10) for part in split]
    assert [len(part) for part in parts] == [5, 2, 3]
    assert set.union(*parts) == set(range(10))
    for part in split:
        assert set(part // 10) == set(range(4))
    # The challenge: 256 realisations give 143, 36 and 77 of them.
    wide = survey._replace(maps=np.empty((101, 256, 0)))
    assert [len(part) for part in split_survey(wide)] == [14_443, 3_636, 7_777]


def test_standardisation_is_by_the_training_part(survey_folder):
    survey = open_survey(survey_folder)
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


def test_wrong_files_are_named(survey_folder, tmp_path):
    with pytest.raises(DataUnavailableError, match=r"must hold 'label\.npy'"):
        open_survey(tmp_path)
    np.save(tmp_path / "label.npy", np.load(survey_folder / "label.npy")[:3])
    for name in (f"{PREFIX}_mask.npy", f"{PREFIX}_kappa.npy"):
        (tmp_path / name).write_bytes((survey_folder / name).read_bytes())
    with pytest.raises(DataUnavailableError, match=r"must have the shape \(3, 10, "):
        open_survey(tmp_path)


# Batches.


def test_batches_cover_an_epoch_and_are_padded(survey_folder):
    survey = open_survey(survey_folder)
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
