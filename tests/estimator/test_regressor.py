"""The regressor: what it learns, what it promises, and what a user may do wrong."""

import dataclasses
import pickle

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fisher8_jax.artifacts import ArtifactError, save_artifact
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._prediction import predict_mixture
from fisher8_jax.training import KLRadius
from fisher8_jax.training._run import train_steps
from tests.estimator.methods import RADIUS

# One shape for nearly all tests, so that they share one compiled program.
ROWS = 240
SETTINGS = {
    "methods": RADIUS, "effort": "quick", "n_members": 2, "max_steps": 2000,
    "hidden_layer_sizes": (16,),
}  # fmt: skip


def with_radius(max_kl):
    return dataclasses.replace(RADIUS, length=KLRadius(max_kl, warm_up=0.2))


@pytest.fixture(autouse=True)
def default_jax():
    """The estimator as users run it, in 32 bits and with rank promotion."""
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def make_data(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (rows, 2))
    std = 0.05 + 0.25 * (inputs[:, 0] > 0)
    return inputs, 100 + 3 * (inputs[:, 0] + inputs[:, 1] ** 2 + std * rng.normal(size=rows))


def fit(**settings):
    return Fisher8Regressor(**(SETTINGS | {"random_state": 0} | settings))


@pytest.fixture(scope="module")
def fitted():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        return fit().fit(*make_data())


def test_it_learns_the_mean_and_where_the_noise_is(fitted):
    inputs, targets = make_data(seed=1, rows=1000)
    assert fitted.score(inputs, targets) > 0.8
    _, std = fitted.predict([[-0.5, 0.0], [0.5, 0.0]], return_std=True)
    # The truth is 0.15 and 0.9.
    assert 0.05 < std[0] < 0.4 < 0.6 < std[1] < 1.3


def test_intervals_cover(fitted):
    inputs, targets = make_data(seed=2, rows=2000)
    low, high = fitted.predict_interval(inputs, coverage=0.8)
    # A little wide where the noise is small: the step of its size is smoothed.
    assert 0.75 < np.mean((low < targets) & (targets < high)) < 0.92
    wider = fitted.predict_interval(inputs[:5], coverage=0.99)
    assert (wider[0] < low[:5]).all()
    assert (wider[1] > high[:5]).all()


def test_the_parts_of_the_variance_add_up(fitted):
    inputs, _ = make_data(seed=1, rows=7)
    aleatoric, epistemic = fitted.predict_uncertainty(inputs)
    _, std = fitted.predict(inputs, return_std=True)
    np.testing.assert_allclose(aleatoric + epistemic, std**2, rtol=1e-5)
    mixture = fitted.predict_distribution(inputs)
    np.testing.assert_allclose(mixture.mean, fitted.predict(inputs), rtol=1e-6)
    np.testing.assert_allclose(mixture.variance, std**2, rtol=1e-4)


def test_nll_is_that_of_the_mixture_and_nan_where_missing(fitted):
    inputs, targets = make_data(seed=1, rows=7)
    values = fitted.nll(inputs, np.where(np.arange(7) == 2, np.nan, targets))
    expected = fitted.predict_distribution(inputs).nll(targets.astype(np.float32))
    np.testing.assert_allclose(np.delete(values, 2), np.delete(expected, 2), rtol=2e-3, atol=2e-3)
    assert np.isnan(values[2])
    assert np.isnan(values).sum() == 1


def test_random_state_decides(fitted):
    inputs, targets = make_data()
    again, other = fit().fit(inputs, targets), fit(random_state=1).fit(inputs, targets)
    np.testing.assert_array_equal(again.predict(inputs), fitted.predict(inputs))
    assert np.abs(other.predict(inputs) - fitted.predict(inputs)).max() > 1e-3


def test_all_fits_of_one_shape_share_one_program(fitted):
    before = train_steps._cache_size()
    fit(random_state=5, methods=with_radius(0.001)).fit(*make_data(seed=3))
    assert train_steps._cache_size() == before


def test_a_prediction_does_not_depend_on_the_rows_beside_it(fitted):
    inputs, _ = make_data(seed=1, rows=700)
    np.testing.assert_array_equal(fitted.predict(inputs)[650:653], fitted.predict(inputs[650:653]))


def test_early_stopping_restores_the_best_parameters():
    """On pure noise the best network is the first one; training on must not count."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(ROWS, 2)), rng.normal(size=ROWS)
    model = fit(patience=0.2, methods=with_radius(0.1)).fit(inputs, targets)
    assert model.n_iter_ < 2000
    fresh = rng.normal(size=(1000, 2)), rng.normal(size=1000)
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    assert np.mean(model.nll(*fresh)) < entropy + 0.15
    # The best held-out NLL is that of the parameters that were kept.
    assert (model.held_out_nll_ < entropy + 0.3).all()


def test_several_targets_with_missing_ones():
    inputs, first = make_data()
    targets = np.stack([first, 5 - inputs[:, 1]], axis=1)
    targets[::3, 0] = np.nan
    model = fit().fit(inputs, targets)
    fresh, truth = make_data(seed=1, rows=500)
    mean = model.predict(fresh)
    assert mean.shape == (500, 2)
    assert np.corrcoef(mean[:, 0], truth)[0, 1] > 0.85
    assert np.corrcoef(mean[:, 1], -fresh[:, 1])[0, 1] > 0.95
    low, high = model.predict_interval(fresh)
    assert low.shape == high.shape == (500, 2)


def test_rows_without_weight_do_not_count():
    inputs, targets = make_data()
    weights = np.where(np.arange(ROWS) % 4 == 0, 0.0, 1.0)
    spoiled = np.where(weights == 0, 1e6, targets)
    model = fit().fit(inputs, spoiled, sample_weight=weights)
    assert model.score(*make_data(seed=1)) > 0.75
    doubled = fit().fit(inputs, spoiled, sample_weight=2 * weights)
    np.testing.assert_allclose(doubled.predict(inputs), model.predict(inputs), rtol=1e-4)


def test_it_is_an_estimator_like_others(fitted):
    inputs, targets = make_data()
    copy = clone(fitted).set_params(methods=with_radius(0.01))
    assert copy.get_params()["methods"] == with_radius(0.01)
    assert not hasattr(copy, "params_")
    thawed = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(thawed.predict(inputs), fitted.predict(inputs))
    pipeline = make_pipeline(StandardScaler(), fit()).fit(inputs, targets)
    np.testing.assert_allclose(pipeline.predict(inputs), fitted.predict(inputs), rtol=1e-3)
    grid = {"methods": [with_radius(0.01), with_radius(0.03)]}
    search = GridSearchCV(fit(max_steps=100), grid, cv=2).fit(inputs, targets)
    assert search.best_score_ > 0


def test_save_and_load_without_pickle(fitted, tmp_path):
    inputs, targets = make_data()
    fitted.save(tmp_path / "model.f8")
    loaded = Fisher8Regressor.load(tmp_path / "model.f8")
    np.testing.assert_array_equal(loaded.predict(inputs), fitted.predict(inputs))
    np.testing.assert_array_equal(loaded.nll(inputs, targets), fitted.nll(inputs, targets))
    assert loaded.get_params() == fitted.get_params() | {"hidden_layer_sizes": [16]}
    assert clone(loaded).fit(inputs, targets).n_iter_ == fitted.n_iter_
    save_artifact(tmp_path / "other", {"a": np.zeros(1)}, config={"kind": "other"})
    with pytest.raises(ArtifactError, match="holds another model than a Fisher8Regressor"):
        Fisher8Regressor.load(tmp_path / "other")
    for config in ({}, {"settings": []}, {"settings": {"no": 1}}, {"settings": {}}):
        save_artifact(
            tmp_path / "part", {}, config={"kind": "Fisher8Regressor", "version": 4, **config}
        )
        with pytest.raises(ArtifactError, match="holds no whole Fisher8Regressor"):
            Fisher8Regressor.load(tmp_path / "part")


def test_64_bit_mode_and_strict_ranks_change_nothing(fitted):
    inputs, targets = make_data()
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        model = fit().fit(inputs, targets)
        mean = model.predict(inputs)
    np.testing.assert_allclose(mean, fitted.predict(inputs), rtol=2e-3)


def test_large_offsets_lose_nothing():
    inputs, targets = make_data()
    model = fit().fit(inputs * 1e-6 + 1e6, targets + 1e9)
    mean = model.predict(inputs * 1e-6 + 1e6)
    assert np.corrcoef(mean - 1e9, targets)[0, 1] > 0.9


def test_constant_targets_are_predicted():
    inputs, _ = make_data()
    mean, std = fit().fit(inputs, np.full(ROWS, 7.0)).predict(inputs, return_std=True)
    np.testing.assert_allclose(mean, 7.0, atol=0.1)
    assert np.isfinite(std).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_members": 0}, "`n_members` must be a positive integer, got 0"),
        ({"max_steps": "many"}, "`max_steps` must be a positive integer or 'auto', got 'many'"),
        ({"batch_size": 2.5}, "`batch_size` must be a positive integer, got 2.5"),
        ({"batch_size": "all"}, "`batch_size` must be a positive integer or 'auto', got 'all'"),
        ({"validation_fraction": 1}, "`validation_fraction` must lie strictly between 0 and 1"),
        ({"bins": 16}, "`bins` must be True, False or 'auto', got 16"),
        ({"effort": "high"}, "`effort` must be one of quick, default, best; got 'high'"),
        ({"shrink_variance": "no"}, "`shrink_variance` must be True or False, got 'no'"),
        ({"show_progress": 2}, "`show_progress` must be True or False, got 2"),
        ({"patience": 0}, "`patience` must be positive"),
        ({"hidden_layer_sizes": 1.5}, "`hidden_layer_sizes` must be an integer or a sequence"),
        ({"hidden_layer_sizes": (8, 0)}, "`hidden_layer_sizes` must be a positive integer"),
        ({"n_members": 10**30}, "`n_members` must be at most 2,147,483,647, got 1e\\+30"),
        ({"n_members": 10**9}, "`n_members` 1000000000 of `hidden_layer_sizes` .* parameters"),
        ({"hidden_layer_sizes": (10**6, 10**6)}, "Give fewer members or narrower layers"),
        ({"hidden_layer_sizes": 10**30}, "`hidden_layer_sizes` must be at most"),
        ({"max_steps": 2**31 - 1, "n_members": 2}, "Give fewer steps; 'auto' takes at most 12,000"),
        ({"max_steps": 10**30}, "`max_steps` must be at most"),
        ({"batch_size": 10**30}, "`batch_size` must be at most"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        fit(**settings).fit(*make_data())


def test_bad_data_is_named(fitted):
    inputs, targets = make_data()
    with pytest.raises(ValueError, match="Column 1 of `y` has no target with a positive weight"):
        fit().fit(inputs, np.stack([targets, np.full(ROWS, np.nan)], 1))
    with pytest.raises(ValueError, match="Negative values in data"):
        fit().fit(inputs, targets, sample_weight=-np.ones(ROWS))
    with pytest.raises(ValueError, match="Found array with dim 3"):
        fit().fit(inputs, targets.reshape(-1, 1, 1))
    with pytest.raises(ValueError, match=r"`y` must have rows of shape \(\) as in `fit`"):
        fitted.nll(inputs, targets[:, None])
    with pytest.raises(ValueError, match="`coverage` must lie strictly between 0 and 1, got 95"):
        fitted.predict_interval(inputs, coverage=95)


@pytest.mark.parametrize("name", ["fit", "partial_fit"])
def test_a_fit_that_is_interrupted_changes_nothing(fitted, monkeypatch, name):
    """Neither the encoder nor the names of columns may be those of rows never learned."""
    inputs, targets = make_data()
    model, before = pickle.loads(pickle.dumps(fitted)), fitted.predict(inputs)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for place in ("train_candidates", "train_on"):
        monkeypatch.setattr(f"fisher8_jax.estimator._regressor.{place}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, name)(1e3 + 5 * inputs, targets - 7)
    np.testing.assert_array_equal(model.predict(inputs), before)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples|3 features"):
        getattr(model, name)(np.ones((20, 3)), np.ones(19))
    np.testing.assert_array_equal(model.predict(inputs), before)
    first = fit()
    with pytest.raises(KeyboardInterrupt):
        getattr(first, name)(inputs, targets)
    with pytest.raises(NotFittedError):
        first.predict(inputs)


def test_a_batch_far_above_the_rows_costs_nothing():
    """It took half a minute and a gigabyte for sixty rows."""
    inputs, targets = make_data(rows=60)
    setup = {"n_members": 2, "max_steps": 20, "methods": RADIUS}
    large = fit(**setup, batch_size=10**6).fit(inputs, targets)
    small = fit(**setup, batch_size=64).fit(inputs, targets)
    np.testing.assert_array_equal(large.predict(inputs), small.predict(inputs))


def test_distributions_of_any_number_of_rows_share_one_program(fitted):
    inputs, targets = make_data(seed=1, rows=1100)
    whole = fitted.predict_distribution(inputs)
    before = predict_mixture._cache_size()
    for rows in (1, 7, 512, 700):
        part = fitted.predict_distribution(inputs[:rows])
        assert part.batch_shape == (rows,)
        np.testing.assert_array_equal(part.mean, whole[:rows].mean)
    assert predict_mixture._cache_size() == before
    np.testing.assert_allclose(
        whole.nll(targets), fitted.nll(inputs, targets), rtol=1e-4, atol=1e-6
    )


def test_progress_counts_all_candidates(monkeypatch, capsys):
    """Every likelihood with every method is one of a number that is known from the start."""
    monkeypatch.setattr("fisher8_jax.estimator._setup.is_watched", lambda: True)
    two = {"methods": [RADIUS, with_radius(0.2)], "max_steps": 5}
    Fisher8Regressor(**(SETTINGS | two), random_state=0).fit(*make_data())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines if "step 5/5" in line] == ["1 of 2", "2 of 2"]
