"""The estimator's methods: every one that 'auto' tries learns; what cannot be tried is named."""

import numpy as np
import pytest

from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._methods import AUTOMATIC, check_methods
from tests.estimator.methods import RADIUS

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
