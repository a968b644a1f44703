"""Any target: every likelihood by name, the choice between them, and numbers of any size."""

import jax
import numpy as np
import pytest
from scipy import stats

from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._methods import Recipe, check_methods
from fisher8_jax.estimator._setup import check_setup
from fisher8_jax.estimator._training import Candidate, best_candidate
from fisher8_jax.families import Gamma
from fisher8_jax.training import (
    LearningRate,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)
from fisher8_jax.training._run import train_steps
from fisher8_jax.training._validation import _score, _validate
from tests.estimator.methods import ADAM, RADIUS

ROWS = 240
SETTINGS = {
    "methods": RADIUS,
    "n_members": 2,
    "max_steps": 600,
    "hidden_layer_sizes": (16,),
    "random_state": 0,
}
COUNTS = {"poisson", "negative_binomial", "zero_inflated_poisson"}


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def make_inputs(seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, 2))


def make_targets(inputs, family, seed=1):
    """Targets whose size or place depends on the first input."""
    rng, x = np.random.default_rng(seed), inputs[:, 0]
    return {
        "gaussian": lambda: 3 * x + 0.3 * rng.normal(size=ROWS),
        "student_t": lambda: 3 * x + 0.3 * rng.standard_t(3, ROWS),
        "laplace": lambda: 3 * x + rng.laplace(0, 0.3, ROWS),
        "log_normal": lambda: 1e4 * np.exp(x + 0.3 * rng.normal(size=ROWS)),
        "gamma": lambda: rng.gamma(5, 1e-4 * np.exp(x)),
        "weibull": lambda: np.exp(x) * rng.weibull(3, ROWS),
        "poisson": lambda: rng.poisson(np.exp(3 + x)).astype(float),
        "negative_binomial": lambda: rng.negative_binomial(3, 3 / (3 + np.exp(3 + x))).astype(
            float
        ),
        "zero_inflated_poisson": lambda: rng.poisson(np.exp(2 + x)) * (rng.random(ROWS) > 0.3),
        "beta": lambda: rng.beta(5 * np.exp(x), 5),
        "bernoulli": lambda: (rng.random(ROWS) < 1 / (1 + np.exp(-3 * x))).astype(float),
        "von_mises": lambda: rng.vonmises(np.pi + 0.5 * x, 20),
    }[family]()


@pytest.mark.parametrize(
    "family",
    [
        "gamma",
        "poisson",
        "von_mises",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "student_t",
                "laplace",
                "log_normal",
                "weibull",
                "negative_binomial",
                "zero_inflated_poisson",
                "beta",
                "bernoulli",
            )
        ),
    ],
)
def test_every_family_learns(family):
    inputs = make_inputs()
    targets = make_targets(inputs, family)
    model = Fisher8Regressor(**SETTINGS, family=family).fit(inputs, targets)
    assert model.family_ == family
    fresh = make_inputs(seed=2)
    truth = make_targets(fresh, family, seed=3)
    mean, std = model.predict(fresh, return_std=True)
    if family == "von_mises":
        # The mean direction wraps around pi, where an arithmetic mean of members would be near 0.
        error = np.angle(np.exp(1j * (mean - np.pi - 0.5 * fresh[:, 0])))
        assert np.abs(error).mean() < 0.2
        assert (np.abs(mean) <= np.pi).all()
    else:
        assert np.corrcoef(mean, truth)[0, 1] > 0.4
        assert 0.3 < np.mean(std) / np.std(truth - mean) < 3
    assert np.isfinite(model.nll(fresh, truth)).all()
    low, high = model.predict_interval(fresh, coverage=0.8)
    if family not in ("bernoulli", "von_mises"):
        assert 0.65 < np.mean((low <= truth) & (truth <= high)) < 0.95


def test_a_class_is_the_family_of_that_name():
    inputs = make_inputs()
    targets = make_targets(inputs, "gamma")
    by_class = Fisher8Regressor(**SETTINGS, family=Gamma).fit(inputs, targets)
    by_name = Fisher8Regressor(**SETTINGS, family="gamma").fit(inputs, targets)
    np.testing.assert_array_equal(by_class.predict(inputs), by_name.predict(inputs))
    assert by_class.family_ == "gamma"


def test_auto_saves_data_with_rare_outliers():
    """Where one row of a hundred is wild, the Gaussian's held-out NLL is ruined."""
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    targets[::60] += 300
    model = Fisher8Regressor(**SETTINGS, family="auto").fit(inputs, targets)
    assert model.family_ in ("student_t", "laplace")
    scores = model.candidates_
    assert set(scores) == {f"{name}, {RADIUS}" for name in ("gaussian", "student_t", "laplace")}
    assert scores[f"{model.family_}, {RADIUS}"] == min(scores.values())
    assert scores[f"gaussian, {RADIUS}"] > scores[f"student_t, {RADIUS}"] + 0.5
    clean = make_targets(inputs, "gaussian", seed=5)
    assert np.median(np.abs(model.predict(inputs) - clean)) < 0.6


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ([0.0, 3.0, 1.0], COUNTS),
        (np.arange(60.0), {*COUNTS, "gaussian", "student_t", "laplace"}),
        (
            1000 + np.arange(60.0),
            {*COUNTS, "log_normal", "gamma", "gaussian", "student_t", "laplace"},
        ),
        ([0.0, 1.0, 1.0], {"bernoulli"}),
        ([0.2, 0.9], {"beta", "gaussian", "student_t", "laplace"}),
        ([0.2, 9.0], {"log_normal", "gamma", "gaussian", "student_t", "laplace"}),
        ([-0.2, 9.0], {"gaussian", "student_t", "laplace"}),
    ],
)
def test_auto_tries_what_fits_the_data(targets, names):
    from fisher8_jax.estimator._families import choose_likelihoods

    targets = np.array(targets)
    assert set(choose_likelihoods("auto", targets, np.ones(len(targets), bool))) == names


@pytest.mark.parametrize(
    ("family", "targets", "message"),
    [
        ("gama", [1.0, 2.0], "`family` must be 'auto', a class of `fisher8_jax.families`, or one"),
        (
            "gamma",
            [1.0, -2.0],
            "'gamma' does not fit `y`: `targets` of Gamma must be positive finite numbers, got 1",
        ),
        (
            "poisson",
            [1.0, 2.5],
            "whole numbers from 0, got 1 of 2 that are not, .*: 2.5. Choose another, or 'auto'",
        ),
    ],
)
def test_families_that_do_not_fit_are_named(family, targets, message):
    with pytest.raises(ValueError, match=message):
        Fisher8Regressor(family=family).fit([[0.0], [1.0]], targets)


@pytest.mark.parametrize(
    ("shift", "scale"), [(1e9, 1.0), (0, 1e-170), (0, 1e160), (-1e15, 1e3), (1e300, 1e290)]
)
def test_targets_of_any_size_lose_nothing(shift, scale):
    inputs = make_inputs()
    standard = 5 * np.sin(3 * inputs[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=ROWS)
    targets = shift + scale * standard
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    mean, std = model.predict(inputs, return_std=True)
    assert np.corrcoef((mean - shift) / scale, standard)[0, 1] > 0.95
    assert (np.abs(std / scale) < 5).all()
    dist = model.predict_distribution(inputs)
    spread = std.min()
    np.testing.assert_allclose(dist.mean, mean, atol=1e-6 * spread)
    np.testing.assert_allclose(dist.std, std, rtol=1e-5)
    ends = model.predict_interval(inputs, coverage=0.8)
    np.testing.assert_allclose(dist.interval(0.8), ends, atol=1e-5 * spread)
    values = model.nll(inputs, targets)
    np.testing.assert_allclose(dist.nll(targets), values, atol=1e-4)
    # An independent route: the density of the two members, in units of the scale.
    members = dist.standard.members
    z = (targets - model.scaler_.shift) / model.scaler_.scale
    density = stats.norm.pdf(z, members.mean, np.exp(0.5 * np.asarray(members.log_variance)))
    expected = -np.log(density.mean(axis=0)) + np.log(model.scaler_.scale)
    np.testing.assert_allclose(values, expected, atol=1e-3)
    covered = (ends[0] < targets) & (targets < ends[1])
    assert 0.7 < covered.mean() < 0.95


def test_exactly_max_steps_are_made():
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    for steps in (1, 137):
        settings = SETTINGS | {"max_steps": steps, "patience": 9.0}
        assert Fisher8Regressor(**settings).fit(inputs, targets).n_iter_ == steps


def test_a_bad_row_does_not_end_the_training(monkeypatch):
    """After one gradient that is not finite the momentum is still good: the recipe's guard."""
    from fisher8_jax.estimator import _training

    scaled_data = _training._scaled_data

    def with_one_bad_row(rows, scaler):
        data = scaled_data(rows, scaler)
        inputs = data.inputs.copy()
        inputs[7] = np.inf
        return data._replace(inputs=inputs)

    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    monkeypatch.setattr(_training, "_scaled_data", with_one_bad_row)
    model = Fisher8Regressor(**SETTINGS | {"max_steps": 2000}).fit(inputs, targets)
    assert model.score(inputs, targets) > 0.8


def test_a_fold_without_targets_is_no_perfect_fold():
    """One row in eighty has a second target: every fold gets some, and none scores 0."""
    inputs = make_inputs()
    targets = np.stack([make_targets(inputs, "gaussian"), 5 + inputs[:, 1]], axis=1)
    targets[10:, 1] = np.nan
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    assert np.isfinite(model.held_out_nll_).all()
    assert (model.held_out_nll_ != 0).all()
    assert np.isfinite(model.predict(inputs)).all()
    only_two = np.full(ROWS, np.nan)
    only_two[:2] = 1.0, 2.0
    assert np.isfinite(Fisher8Regressor(**SETTINGS).fit(inputs, only_two).predict(inputs)).all()


def test_one_method_compares_families_and_all_train_the_best():
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    targets[::60] += 300
    settings = {**SETTINGS, "methods": [RADIUS, ADAM], "max_steps": 200}
    model = Fisher8Regressor(**settings, family="auto").fit(inputs, targets)
    tried = {f"{name}, {RADIUS}" for name in ("gaussian", "student_t", "laplace")}
    assert set(model.candidates_) == tried | {f"{model.family_}, {ADAM}"}
    assert model.family_ != "gaussian"


def test_by_default_few_rows_are_learned_by_one_program():
    """All candidates share it; few rows do not wait for the compilation of a second one."""
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    settings = {**SETTINGS, "methods": "auto", "max_steps": 200}
    before = train_steps._cache_size()
    model = Fisher8Regressor(**settings).fit(inputs, targets)
    assert train_steps._cache_size() <= before + 1
    tried = "gaussian, network natural gradient, damping 1, KL radius 1"
    assert set(model.candidates_) == {tried, f"{tried}, no bins"}
    assert model.score(inputs, targets) > 0.9


def test_what_is_tried_depends_on_the_number_of_rows():
    bounds = ((2, 599), (600, 3999), (4000, 10**6))
    tried = {rows: check_methods("auto", rows) for pair in bounds for rows in pair}
    parts = {rows: {type(one.method.gradient) for one in found} for rows, found in tried.items()}
    for least, most in bounds:
        assert tried[least] == tried[most]
        assert {one.has_bins for one in tried[least]} == {True, False}
    assert parts[599] == {NetworkNaturalGradient}
    assert parts[600] == {NetworkNaturalGradient, OutputNaturalGradient}
    assert parts[4000] == {OutputNaturalGradient, LossGradient}


def test_effort_decides_about_members_and_steps():
    setups = [
        check_setup(Fisher8Regressor(effort=effort), 1000)
        for effort in ("quick", "default", "best")
    ]
    quick, default, best = ((one.members, one.plan.steps) for one in setups)
    assert quick[0] < default[0] < best[0]
    assert quick[1] < default[1] < best[1]
    costs = [members * steps for members, steps in (quick, default, best)]
    assert 4 <= costs[1] / costs[0] <= 6
    assert 8 <= costs[2] / costs[1] <= 12
    assert all(one.plan.batch_size == 64 for one in setups)
    assert check_setup(Fisher8Regressor(), 600).plan.batch_size == 64
    assert check_setup(Fisher8Regressor(), 599).plan.batch_size == 32
    own = Fisher8Regressor(effort="best", n_members=3, max_steps=70)
    assert (check_setup(own, 1000).members, check_setup(own, 1000).plan.steps) == (3, 70)
    for wrong in ("high", None, 3, ["best"]):
        with pytest.raises(ValueError, match="`effort` must be one of quick, default, best; got"):
            check_setup(Fisher8Regressor(effort=wrong), 1000)


def test_methods_of_two_structures_share_the_programs_of_validation():
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    settings = {**SETTINGS, "methods": ADAM, "max_steps": 200}
    Fisher8Regressor(**settings).fit(inputs, targets)
    before = _score._cache_size(), _validate._cache_size()
    plain = Method(LossGradient("nll"), LearningRate(0.001))
    Fisher8Regressor(**settings | {"methods": plain}).fit(inputs, targets)
    assert (_score._cache_size(), _validate._cache_size()) == before


def make_candidate(name, nll, family="gaussian"):
    value = np.arange(len(nll), dtype=np.float32)
    return Candidate(
        family,
        (Recipe(name),),
        None,
        None,
        {"w": value},
        10,
        np.asarray(nll),
        np.zeros((1, 1), int),
    )


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        ([1.1, 0.95, 1.0], "a + b"),  # worse by 0.017 with a standard error of 0.044
        ([1.13, 1.0, 1.02], "a + b"),  # worse by 0.05 with one of 0.040
        ([1.2, 1.21, 1.19], "a"),  # worse by 0.2 in every fold
        ([1.6, 1.0, 1.0], "a"),  # worse by 0.2 with one of 0.2: it failed in one fold
        ([1.1, np.inf, 1.0], "a"),
        ([1.1, np.nan, 1.0], "a"),
    ],
)
def test_members_of_methods_about_as_good_are_kept_too(other, kept):
    best = best_candidate([make_candidate("a", [1.0, 1.0, 1.0]), make_candidate("b", other)])
    assert " + ".join(best.methods) == kept
    assert len(best.params["w"]) == len(best.held_out_nll) == 3 * len(kept.split(" + "))


@pytest.mark.parametrize("failed", [5.0, np.inf, np.nan])
def test_a_failed_member_of_the_best_method_is_replaced(failed):
    a, b = make_candidate("a", [1.0, 0.9, 1.0]), make_candidate("b", [0.0, failed, 0.1])
    b.params["w"][:] = 10.0
    best = best_candidate([a, b])
    assert best.methods == ("b",)
    np.testing.assert_array_equal(best.held_out_nll, [0.0, 0.9, 0.1])
    np.testing.assert_array_equal(best.params["w"], [10.0, 1.0, 10.0])  # the second one is a's
    # Half of the members are not a failure of single ones.
    often = make_candidate("b", [0.0, failed, failed])
    assert best_candidate([a, often]).methods == ("a",)
    alone = best_candidate([b])
    np.testing.assert_array_equal(alone.held_out_nll, b.held_out_nll)


def test_members_of_another_likelihood_are_never_mixed_in():
    same = make_candidate("b", [1.0, 1.0, 1.0], family="laplace")
    best = best_candidate([make_candidate("a", [0.9, 1.0, 1.0]), same])
    assert (best.family, best.methods) == ("gaussian", ("a",))


def test_methods_are_candidates():
    inputs = make_inputs()
    targets = make_targets(inputs, "gaussian")
    settings = {**SETTINGS, "methods": (RADIUS, ADAM)}
    model = Fisher8Regressor(**settings).fit(inputs, targets)
    assert set(model.candidates_) == {f"gaussian, {RADIUS}", f"gaussian, {ADAM}"}
    best = min(model.candidates_, key=model.candidates_.get)
    assert best in {f"gaussian, {method}" for method in model.methods_}
    members = len(model.methods_) * settings["n_members"]
    assert len(model.held_out_nll_) == len(model.params_[0]["bias"]) == members
    assert model.score(inputs, targets) > 0.9
    with pytest.raises(ValueError, match="`methods` must be 'auto', a `fisher8_jax"):
        Fisher8Regressor(methods="sgd").fit(inputs, targets)
