"""Scorers by name, pipelines, importance: what users of scikit-learn are used to."""

import json

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fisher8_jax import evaluate
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import (
    SCORERS,
    Fisher8Regressor,
    Importance,
    last_step,
    permutation_importance,
)
from fisher8_jax.estimator._epistemic import Knowledge
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.estimator._prediction import in_blocks, predict_moments
from fisher8_jax.estimator._scorers import neg_crps, neg_interval_score, neg_nll
from fisher8_jax.estimator._widths import Calibration, Ensemble
from fisher8_jax.families import StudentTLearnedDf
from fisher8_jax.plots import plot_importance
from tests.estimator.methods import RADIUS

SETTINGS = {
    "methods": RADIUS,
    "n_members": 1,
    "max_steps": 800,
    "hidden_layer_sizes": (16,),
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def make_data(seed=0, rows=300):
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (rows, 3))
    return inputs, 3 * inputs[:, 0] + np.exp(2 * inputs[:, 1] - 2) * rng.normal(size=rows)


@pytest.fixture(scope="module")
def fitted():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        return Fisher8Regressor(**SETTINGS).fit(*make_data())


def test_scores_are_those_of_the_textbook(fitted):
    inputs, targets = make_data(seed=1)
    targets[0] = np.nan
    known = slice(1, None)
    mean, std = fitted.predict(inputs, return_std=True)
    z = ((targets - mean) / std)[known]
    nll = -stats.norm.logpdf(z) + np.log(std[known])
    np.testing.assert_allclose(neg_nll(fitted, inputs, targets), -nll.mean(), rtol=1e-4)
    crps = std[known] * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
    np.testing.assert_allclose(neg_crps(fitted, inputs, targets), -crps.mean(), rtol=1e-3)
    low, high = (mean + sign * stats.norm.ppf(0.95) * std for sign in (-1, 1))
    fine = np.maximum(low - targets, 0) + np.maximum(targets - high, 0)
    score = (high - low + 2 / 0.1 * fine)[known].mean()
    np.testing.assert_allclose(neg_interval_score(fitted, inputs, targets), -score, rtol=1e-3)


def test_searches_use_the_scores_by_name():
    inputs, targets = make_data()
    model = Fisher8Regressor(**SETTINGS | {"max_steps": 100})
    assert np.isfinite(cross_val_score(model, inputs, targets, scoring=neg_nll, cv=2)).all()
    grid = {"methods": ["auto", RADIUS]}
    search = GridSearchCV(model, grid, scoring=dict(SCORERS), refit="neg_nll", cv=2)
    found = search.fit(inputs, targets).cv_results_
    for name in ("neg_nll", "neg_crps", "neg_interval_score"):
        assert np.isfinite(found[f"mean_test_{name}"]).all()


def test_pipelines_lead_to_intervals_and_distributions():
    inputs, targets = make_data()
    scaler = StandardScaler().set_output(transform="pandas")
    pipeline = make_pipeline(scaler, Fisher8Regressor(**SETTINGS)).fit(inputs, targets)
    mean, std = pipeline.predict(inputs, return_std=True)
    regressor, rows = last_step(pipeline, inputs)
    low, high = regressor.predict_interval(rows)
    assert (low < mean).all()
    assert (mean < high).all()
    np.testing.assert_allclose(regressor.predict_distribution(rows).std, std, rtol=1e-5)
    assert np.isfinite(neg_nll(pipeline, inputs, targets))


def test_importance_tells_mean_from_spread(fitted):
    inputs, targets = make_data(seed=1)
    targets[3] = np.nan
    found = permutation_importance(fitted, inputs, targets, n_repeats=2)
    assert found.names == ("x0", "x1", "x2")
    assert np.argmax(found.mean) == 0
    assert np.argmax(found.spread) == 1
    assert abs(found.mean[2]) < 0.1 * found.mean[0]
    assert found.table().splitlines()[1].startswith("x0")
    with pytest.raises(ValueError, match="`y` must have one column, got shape"):
        permutation_importance(fitted, inputs, targets[:, None])
    with pytest.raises(ValueError, match="n_repeats"):
        permutation_importance(fitted, inputs, targets, n_repeats=0)


def test_predicted_distributions_are_scored_by_the_metrics():
    """Metrics compile what they compute; inside, a prediction works in their precision."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 2))
    targets = (3 + 10 * inputs[:, 0] + rng.normal(size=60)).astype(np.float32)
    model = Fisher8Regressor(max_steps=20, random_state=0).fit(inputs, targets)
    dist = model.predict_distribution(inputs)
    found, expected = evaluate(dist, targets), evaluate(Mixture(dist.members), targets)
    np.testing.assert_allclose(found.nll, expected.nll, rtol=1e-4)
    np.testing.assert_allclose(found.crps, expected.crps, rtol=1e-4)
    np.testing.assert_allclose(found.nll, dist.nll(targets).mean(), rtol=1e-5)


def test_partial_fit_goes_on_with_more_rows(tmp_path):
    """A second half that the first half says nothing about is learned, with the same scales."""
    inputs, targets = make_data(rows=240)
    low = inputs[:, 0] < 0
    bent = np.where(low, targets, targets + 4)
    model = Fisher8Regressor(**SETTINGS).partial_fit(inputs[low], bent[low])
    before, steps, scale = model.predict(inputs[~low]), model.n_iter_, model.scaler_
    first = Fisher8Regressor(**SETTINGS).fit(inputs[low], bent[low])
    np.testing.assert_array_equal(before, first.predict(inputs[~low]))  # the first call is `fit`
    model.partial_fit(inputs, bent)
    after = model.predict(inputs[~low])
    assert np.mean((after - bent[~low]) ** 2) < 0.2 * np.mean((before - bent[~low]) ** 2)
    assert model.scaler_ is scale
    assert model.n_iter_ > steps
    model.save(tmp_path / "model.f8", with_rows=True)
    same = Fisher8Regressor.load(tmp_path / "model.f8").partial_fit(inputs, bent)
    assert same.n_iter_ > model.n_iter_
    model.save(tmp_path / "model.f8")
    with pytest.raises(ValueError, match="without its rows"):
        Fisher8Regressor.load(tmp_path / "model.f8").partial_fit(inputs, bent)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(inputs[:, :2], bent)
    with pytest.raises(ValueError, match=r"`y` must have rows of shape \(\)"):
        model.partial_fit(inputs, np.stack([bent, bent], axis=1))


def test_importance_is_drawn(fitted):
    inputs, targets = make_data(seed=2)
    found = permutation_importance(fitted, inputs, targets, n_repeats=2)
    ax = plot_importance(
        found.names, found.mean, found.spread, error=found.error, most=2, ax=Figure().subplots()
    )
    assert ax.get_yticklabels()[0].get_text() == "x0"
    assert ax.get_legend_handles_labels()[1] == ["mean", "spread"]
    assert [bar.get_width() for bar in ax.containers[1]][:1] == [found.mean[0]]
    with pytest.raises(ValueError, match="one number for each of the 3 names"):
        plot_importance(found.names, found.mean[:2], found.spread[:2])
    with pytest.raises(ValueError, match="`error` must have shape"):
        plot_importance(found.names, found.mean, found.spread, error=found.mean)


def test_importance_prints_as_a_table_and_is_json():
    found = Importance(
        ("a long name", "b"), np.array([0.0, 1.0]), np.zeros(2), np.full((2, 2), 0.5)
    )
    assert repr(found).splitlines() == [
        "column            mean    spread",
        "b                1.000     0.000",
        "a long name      0.000     0.000",
    ]
    stored = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert stored["b"] == {"mean": 1.0, "spread": 0.0, "mean_error": 0.5, "spread_error": 0.5}


def test_predictions_without_a_mean_have_a_center():
    """Half a degree of freedom: no mean, no variance; the median exists."""
    network = DenseNetwork((), link_of(StudentTLearnedDf), ())
    bias = np.array([[2.0, 0.0, np.log(0.5)]] * 2, np.float32)
    params = [{"kernel": np.zeros((2, 1, 3), np.float32), "bias": bias}]
    rows = np.zeros((3, 1), np.float32), np.zeros(3, np.float32)
    zeros = {"anchors": (1, 4, 1), "root": (1, 4, 4), "scale": (1,), "level": (1,)}
    knowledge = Knowledge(**{name: np.zeros(size, np.float32) for name, size in zeros.items()})
    ensemble = Ensemble(
        params, [{k: v[0] for k, v in params[0].items()}], knowledge, Calibration.none(1)
    )
    center, *rest = in_blocks(predict_moments, network, ensemble, *rows)
    np.testing.assert_array_equal(center, 2)
    std, aleatoric, epistemic = rest
    assert np.isinf(std).all()
    assert np.isinf(aleatoric).all()
    np.testing.assert_array_equal(epistemic, 0)
