"""Conformal intervals: coverage by simulation, the CV+ by brute force, groups, files, errors."""

import copy

import numpy as np
import pytest
from scipy import stats

from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._conformal import conformal_of
from fisher8_jax.estimator._widths import Calibration
from tests.estimator.methods import RADIUS

SETTINGS = {
    "methods": RADIUS,
    "n_members": 3,
    "hidden_layer_sizes": (8,),
    "max_steps": 200,
    "random_state": 0,
}
FAMILIES = ("gaussian", "student_t", "gamma", "poisson", "bernoulli", "beta")


def draw(family, rows, seed):
    """Noise that the family is wrong about, of the family's support."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (rows, 1))
    mean = np.sin(3 * inputs[:, 0])
    noise = rng.exponential(size=rows) * (1 + (inputs[:, 0] > 0))
    targets = {
        "gamma": np.exp(mean) * (0.1 + noise),
        "poisson": np.floor(3 * np.exp(mean) * noise),
        "bernoulli": (rng.uniform(size=rows) < 0.5 + 0.4 * mean).astype(float),
        "beta": 1 / (1 + np.exp(mean + noise)),
    }
    return inputs, targets.get(family, mean + noise)


@pytest.fixture(scope="module")
def models():
    return {f: Fisher8Regressor(**SETTINGS, family=f).fit(*draw(f, 200, 0)) for f in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_calibrated_intervals_cover_as_guaranteed(models, family):
    """Of 80 calibrations with 39 rows, each with 100 new rows."""
    model, rows, draws, level = models[family], 39, 80, 0.8
    covered = []
    for seed in range(draws):
        model.calibrate(*draw(family, rows, (1, seed)))
        inputs, targets = draw(family, 100, (2, seed))
        low, high = model.predict_interval(inputs, level, method="conformal")
        covered.append(np.mean((low <= targets) & (targets <= high)))
    # Coverage given the calibration is at least Beta(32, 8), and 100 rows are drawn from it.
    beta = stats.beta(level * (rows + 1), (1 - level) * (rows + 1))
    error = np.sqrt((beta.var() + level * (1 - level) / 100) / draws)
    assert np.mean(covered) > level - 3 * error
    if family not in ("poisson", "bernoulli"):  # without ties it is not more either
        assert np.mean(covered) < level + 1 / (rows + 1) + 3 * error


def test_held_out_rows_cover_without_a_calibration():
    covered, rows = [], 150
    for seed in range(8):
        model = Fisher8Regressor(**SETTINGS | {"random_state": seed})
        model.fit(*draw("gaussian", rows, (3, seed)))
        inputs, targets = draw("gaussian", 500, (4, seed))
        low, high = model.predict_interval(inputs, 0.8, method="conformal")
        covered += list((low <= targets) & (targets <= high))
    # 45 held-out rows a time: the guarantee of the CV+ is 1 - 2 * 0.2, and 0.8 is usual.
    assert np.mean(covered) > 0.8 - 3 * np.sqrt(0.8 * 0.2 / (8 * 45))


def test_ends_are_those_of_the_cv_plus_by_brute_force(models):
    model = models["gaussian"]
    model.conformal_ = None
    (scores,) = conformal_of(model).scores
    inputs, _ = draw("gaussian", 50, 5)
    low, high = model.predict_interval(inputs, 0.9, method="conformal")
    model = copy.copy(model)
    model.calibration_ = Calibration.none(1)  # every fold's members as they were trained
    members = model.predict_distribution(inputs).standard.members
    lows, highs = [], []
    for fold in range(3):
        part = Mixture(type(members)(*(leaf[fold::3] for leaf in vars(members).values())))
        center, std = np.asarray(part.center), np.asarray(part.std)
        lows += [center - s * std for s in scores[fold, :, 0]]
        highs += [center + s * std for s in scores[fold, :, 0]]
    rank = int(0.1 * (len(lows) + 1))
    scale, shift = model.scaler_.scale, model.scaler_.shift
    expected = np.sort(lows, 0)[rank - 1] * scale + shift, np.sort(highs, 0)[-rank] * scale + shift
    np.testing.assert_allclose(low, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(high, expected[1], rtol=1e-5, atol=1e-5)
    memory = model.memory_
    fold, place = 1, memory.held_out[1]
    member = model.predict_distribution(draw("gaussian", 200, 0)[0][place]).standard.member(fold)
    targets = (memory.rows.targets[place] - shift) / scale
    z = np.abs(targets - np.asarray(member.mean)) / np.asarray(member.std)
    np.testing.assert_allclose(scores[fold, :, 0], np.sort(z), rtol=1e-4)


def test_groups_are_covered_each_by_itself(models):
    model = models["gaussian"]
    calibration, new = draw("gaussian", 400, 6), draw("gaussian", 4000, 7)
    labels = [np.where(inputs[:, 0] > 0, "right", "left") for inputs, _ in (calibration, new)]
    model.calibrate(*calibration, groups=labels[0])
    low, high = model.predict_interval(new[0], 0.9, method="conformal", groups=labels[1])
    inside = (low <= new[1]) & (new[1] <= high)
    for label in ("left", "right"):  # about 200 calibration rows each
        assert np.mean(inside[labels[1] == label]) == pytest.approx(0.9, abs=0.065)
    with pytest.raises(ValueError, match="of which the calibration had no row"):
        model.predict_interval(new[0][:1], 0.9, method="conformal", groups=["middle"])
    with pytest.raises(ValueError, match="if, and only if"):
        model.predict_interval(new[0], 0.9, method="conformal")
    with pytest.raises(ValueError, match="one label for each of the 2 rows"):
        model.predict_interval(new[0][:2], 0.9, method="conformal", groups=["left"])
    with pytest.raises(ValueError, match="belong to `method='conformal'`"):
        model.predict_interval(new[0][:1], groups=["left"])
    model.conformal_ = None


def test_few_rows_give_the_whole_line(models):
    model = models["gamma"]
    model.calibrate(*draw("gamma", 5, 0))
    low, high = model.predict_interval(np.zeros((1, 1)), 0.9, method="conformal")
    assert low == 0
    assert high == np.inf
    model.conformal_ = None


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_a_file_keeps_the_intervals(models, tmp_path, is_calibrated):
    model = models["poisson"]
    groups = None
    if is_calibrated:
        model.calibrate(*draw("poisson", 60, 8), groups=np.arange(60) % 2)
        groups = np.arange(20) % 2
    model.save(tmp_path / "model.f8")
    inputs, _ = draw("poisson", 20, 9)
    loaded = Fisher8Regressor.load(tmp_path / "model.f8")
    for one, other in zip(
        model.predict_interval(inputs, 0.8, method="conformal", groups=groups),
        loaded.predict_interval(inputs, 0.8, method="conformal", groups=groups),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, np.floor(one))
    np.testing.assert_array_equal(
        model.predict_familiarity(inputs), loaded.predict_familiarity(inputs)
    )
    model.conformal_ = None


def test_several_targets_with_missing_ones():
    inputs, targets = draw("gaussian", 200, 10)
    both = np.stack([targets, 5 * targets], 1)
    both[::4, 1] = np.nan
    model = Fisher8Regressor(**SETTINGS).fit(inputs, both)
    low, high = model.predict_interval(inputs, 0.8, method="conformal")
    inside = (low <= both) & (both <= high)
    for column, known in enumerate((slice(None), ~np.isnan(both[:, 1]))):
        assert 0.7 < np.mean(inside[known, column]) < 0.95


def test_what_cannot_be_is_named(models):
    with pytest.raises(ValueError, match="`method` must be one of model, conformal"):
        models["gaussian"].predict_interval(np.zeros((1, 1)), method="exact")
    angles = Fisher8Regressor(**SETTINGS, family="von_mises").fit(*draw("gaussian", 60, 0))
    with pytest.raises(ValueError, match="needs targets on a line"):
        angles.predict_interval(np.zeros((1, 1)), method="conformal")
