"""The estimator's methods: every one that 'auto' tries learns; what cannot be tried is named."""

import numpy as np
import pytest

from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._methods import AUTOMATIC, Recipe, check_methods
from tests.estimator.methods import ADAM, RADIUS

TRIED = {one.method: str(one.method) for recipes in AUTOMATIC.values() for one in recipes}


@pytest.mark.parametrize("method", [*TRIED, RADIUS], ids=[*TRIED.values(), str(RADIUS)])
def test_every_method_learns(method):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (150, 2))
    targets = 3 * inputs[:, 0] + 0.1 * rng.normal(size=150)
    model = Fisher8Regressor(
        methods=method, n_members=1, hidden_layer_sizes=(8,), max_steps=2000, random_state=0
    )
    assert model.fit(inputs, targets).score(inputs, targets) > 0.9
    assert model.methods_ == (method,)


@pytest.mark.parametrize("methods", ["adam", [], (), 3, None, ["auto"], [RADIUS, "auto"]])
def test_what_cannot_be_tried_is_named(methods):
    with pytest.raises(ValueError, match=r"`methods` must be 'auto', a `fisher8_jax\.training\.Me"):
        check_methods(methods, 100)


def test_bins_decide_what_networks_see():
    own = (RADIUS, ADAM)
    for bins, expected in (("auto", True), (True, True), (False, False)):
        assert check_methods(own, 100, bins) == tuple(Recipe(one, expected) for one in own)
    few = check_methods("auto", 100)
    assert [one.has_bins for one in few] == [True, False]
    for bins in (True, False, np.bool_(False)):  # what differs in bins alone is tried once
        assert check_methods("auto", 100, bins) == (Recipe(few[0].method, bool(bins)),)


def make_steps(rows, seed=0):
    """Eight values of one number, and a mean that jumps at each of them."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(8, size=(rows, 1)).astype(float)
    return inputs, inputs[:, 0] % 2 + 0.05 * rng.normal(size=rows)


def fit_steps(**settings):
    short = {"methods": ADAM, "n_members": 2, "hidden_layer_sizes": (8,), "max_steps": 600}
    return Fisher8Regressor(**short, random_state=0, **settings).fit(*make_steps(200))


def test_bins_learn_jumps_at_once():
    scores = {bins: fit_steps(bins=bins).score(*make_steps(400, seed=1)) for bins in (True, False)}
    assert scores[True] > 0.97
    assert scores[False] < 0.9


def test_members_without_bins_never_see_them_later():
    """`partial_fit` of members of both kinds is that of each kind by itself."""
    kinds = [fit_steps(bins=bins) for bins in (True, False)]
    both = fit_steps(bins=True)
    both.params_ = [
        {name: np.concatenate([model.params_[k][name] for model in kinds]) for name in layer}
        for k, layer in enumerate(both.params_)
    ]
    both.held_out_nll_ = np.concatenate([model.held_out_nll_ for model in kinds])
    for model in (*kinds, both):
        model.partial_fit(*make_steps(50, seed=2))
    first = both.params_[0]["kernel"][:, 1:]
    assert (first[:2] != 0).all()
    assert (first[2:] == 0).all()
    for model, own in zip(kinds, (slice(0, 2), slice(2, 4)), strict=True):
        for found, expected in zip(both.params_, model.params_, strict=True):
            np.testing.assert_array_equal(found["kernel"][own], expected["kernel"])
        np.testing.assert_array_equal(both.held_out_nll_[own], model.held_out_nll_)


def test_wide_networks_learn():
    inputs, targets = make_steps(100)
    model = Fisher8Regressor(
        n_members=1, hidden_layer_sizes=(600, 300), max_steps=60, random_state=0
    ).fit(inputs, targets)
    assert model.score(inputs, targets) > 0.9
    assert np.isfinite(model.predict_uncertainty(inputs + 20)).all()
