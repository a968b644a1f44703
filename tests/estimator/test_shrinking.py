"""The factor of the members' variances, found by another route and followed through everything."""

import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import ArtifactError
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._families import LIKELIHOODS
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.estimator._shrinking import variance_factor
from fisher8_jax.estimator._training import Rows
from tests.estimator.methods import RADIUS

SETTINGS = {
    "methods": RADIUS,
    "n_members": 3,
    "hidden_layer_sizes": (8,),
    "max_steps": 300,
    "random_state": 0,
}


def make_table(rows=120, targets=None):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (rows, 2))
    noise = rng.normal(size=(rows, targets or 1)) * np.array([1.0, 0.05])[: targets or 1]
    values = 5 + np.sin(3 * inputs[:, :1]) + noise
    return inputs, values if targets else values[:, 0]


def fit(targets=None, **settings):
    return Fisher8Regressor(**SETTINGS | settings).fit(*make_table(targets=targets))


@pytest.mark.parametrize("family", ["gaussian", "student_t", "laplace"])
@pytest.mark.parametrize("targets", [None, 2])
def test_the_mixture_is_as_wide_as_its_members_were(targets, family):
    inputs, _ = make_table()
    plain, shrunk = (fit(targets, family=family, shrink_variance=flag) for flag in (False, True))
    noise, disagreement = plain.predict_uncertainty(inputs)
    assert np.all(plain.variance_factor_ == 1)
    assert np.all(disagreement < noise)  # so that no row is cut off
    factor = 1 - np.mean(disagreement / noise, axis=0)
    np.testing.assert_allclose(shrunk.variance_factor_, factor, rtol=1e-5)
    assert np.all(factor < 0.999)
    np.testing.assert_array_equal(shrunk.predict(inputs), plain.predict(inputs))
    less, same = shrunk.predict_uncertainty(inputs)
    np.testing.assert_allclose(less, factor * noise, rtol=1e-5)
    # Nothing is added in rows that are as familiar as most.
    added = same - disagreement
    assert np.all(added >= 0)
    assert np.mean(added == 0) > 0.8
    np.testing.assert_allclose(np.mean((less + disagreement) / noise, axis=0), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("distance", "factor"),
    [(0.0, 1.0), (0.5, 0.75), (1.0, 0.3), (1e3, 0.3)],  # disagreement 0, a quarter, 1, a million
)
def test_members_that_have_nothing_in_common_keep_some_variance(distance, factor):
    network = DenseNetwork((), link_of(Gaussian), ())
    bias = np.array([[-distance, 0.0], [distance, 0.0]], np.float32)
    params = [{"kernel": np.zeros((2, 3, 2), np.float32), "bias": bias}]
    rows = Rows(np.zeros((5, 3), np.float32), np.zeros(5), np.ones(5, bool), np.ones(5))
    found = variance_factor(network, LIKELIHOODS["gaussian"], params, rows)
    np.testing.assert_allclose(found, factor, rtol=1e-6)


def test_rows_without_anything_in_common_do_not_speak_for_all():
    """One row of four on which the members lie far apart counts as one, not as a thousand."""
    network = DenseNetwork((), link_of(Gaussian), ())
    kernel = np.zeros((2, 1, 2), np.float32)
    kernel[:, 0, 0] = -1e3, 1e3
    params = [{"kernel": kernel, "bias": np.zeros((2, 2), np.float32)}]
    inputs = np.array([[0.0], [0.0], [0.0], [1.0]], np.float32)
    rows = Rows(inputs, np.zeros(4), np.ones(4, bool), np.array([1.0, 1.0, 1.0, 3.0]))
    found = variance_factor(network, LIKELIHOODS["gaussian"], params, rows)
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)  # half of the weight


def test_a_weight_of_zero_is_no_row():
    inputs, targets = make_table()
    weights = np.ones(len(targets))
    weights[::2] = 0
    weighed = Fisher8Regressor(**SETTINGS).fit(inputs, targets, weights)
    half = Fisher8Regressor(**SETTINGS).fit(inputs[1::2], targets[1::2])
    np.testing.assert_array_equal(weighed.variance_factor_, half.variance_factor_)


@pytest.mark.parametrize("settings", [{"n_members": 1}, {"family": "gamma"}])
def test_one_member_and_other_likelihoods_are_left_alone(settings):
    assert fit(**settings).variance_factor_ == 1


def test_more_training_begins_with_the_members_as_they_were():
    inputs, targets = make_table()
    plain, shrunk = fit(shrink_variance=False), fit()
    before = shrunk.variance_factor_
    for model in (plain, shrunk):
        model.partial_fit(inputs[:60], targets[:60])
    np.testing.assert_allclose(shrunk.predict(inputs), plain.predict(inputs), rtol=1e-4)
    np.testing.assert_allclose(shrunk.held_out_nll_, plain.held_out_nll_, rtol=1e-3)
    ratio = shrunk.predict_uncertainty(inputs)[0] / plain.predict_uncertainty(inputs)[0]
    np.testing.assert_allclose(ratio, shrunk.variance_factor_, rtol=1e-3)
    assert shrunk.variance_factor_ != before


def test_a_file_keeps_the_factor(tmp_path):
    model = fit(targets=2)
    model.save(tmp_path / "model.f8")
    loaded = Fisher8Regressor.load(tmp_path / "model.f8")
    np.testing.assert_array_equal(loaded.variance_factor_, model.variance_factor_)
    assert loaded.shrink_variance


@pytest.mark.parametrize("factor", [np.ones(3), np.array([1.0, 0.0]), np.array([1.0, np.nan])])
def test_a_file_with_another_factor_is_refused(tmp_path, factor):
    model = fit(targets=2)
    model.variance_factor_ = factor
    model.save(tmp_path / "model.f8")
    with pytest.raises(ArtifactError, match="variance_factor"):
        Fisher8Regressor.load(tmp_path / "model.f8")
