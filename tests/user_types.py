"""Types that programs of users rely on; the type checker reads this file, nothing runs it."""

from typing import assert_type

import numpy as np
from flax import nnx
from jax import Array

from fisher8_jax import Gaussian
from fisher8_jax.estimator import Fisher8Regressor, Prediction
from fisher8_jax.heads import linen
from fisher8_jax.heads.nnx import DistributionHead


def of_heads(features: Array, targets: Array) -> None:
    """A head returns a distribution, by default a Gaussian."""
    dist = DistributionHead(4, rngs=nnx.Rngs(0))(features)
    assert_type(dist, Gaussian)
    assert_type(dist.nll(targets), Array)
    assert_type(linen.DistributionHead()(features), Gaussian)


def of_the_estimator(rows: np.ndarray, targets: np.ndarray) -> None:
    """`predict` returns an array, and with `return_std` a pair."""
    model = Fisher8Regressor().fit(rows, targets)
    assert_type(model, Fisher8Regressor)
    assert_type(model.predict(rows), np.ndarray)
    mean, std = model.predict(rows, return_std=True)
    assert_type(mean, np.ndarray)
    assert_type(std, np.ndarray)
    assert_type(model.predict_distribution(rows), Prediction)
