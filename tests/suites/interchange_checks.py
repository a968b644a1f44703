"""Predictions handed to other libraries: `python -m tests.suites.interchange_checks`."""

import warnings
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import uncertainty_toolbox
from sklearn.base import clone

from examples import skpro_regressor
from fisher8_jax import Gaussian
from tests.suites.small import SmallRegressor, make_data, run


def skpro_example() -> None:
    """The curve with its growing noise is beyond a straight line with equal noise."""
    found = skpro_regressor.main()
    for network, line in zip(found["Fisher8Regressor"], found["BayesianRidge"], strict=True):
        assert network < line


def skpro_adapter() -> None:
    """Mean and variance through skpro are those of the estimator."""
    x, y = make_data()
    frame, targets = pd.DataFrame(x, columns=["a", "b"]), pd.DataFrame({"y": y})
    mean, std = clone(SmallRegressor()).fit(frame, y).predict(frame, return_std=True)
    adapter = skpro_regressor.SklearnProbaReg(SmallRegressor()).fit(frame, targets)
    dist = adapter.predict_proba(frame)
    np.testing.assert_allclose(dist.mean()["y"], mean, rtol=1e-6)
    np.testing.assert_allclose(dist.var()["y"], std**2, rtol=1e-6)


def toolbox_scores() -> None:
    """NLL and CRPS of uncertainty-toolbox are ours."""
    key_mean, key_targets = jax.random.split(jax.random.key(0))
    targets = jax.random.normal(key_targets, (300,))
    dist = Gaussian(jax.random.normal(key_mean, (300,)), jnp.linspace(-1.0, 1.0, 300))
    parts = [np.asarray(x, np.float64) for x in (dist.mean, dist.std, targets)]
    scores = uncertainty_toolbox.get_all_metrics(*parts, verbose=False)["scoring_rule"]
    np.testing.assert_allclose(scores["nll"], dist.nll(targets).mean(), rtol=1e-5)
    np.testing.assert_allclose(scores["crps"], dist.crps(targets).mean(), rtol=1e-5)


def main() -> None:
    """Runs every check."""
    warnings.simplefilter("ignore")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in NAMES)
    run(f"interchange ({versions})", {check.__name__: check for check in CHECKS})


NAMES = ("skpro", "uncertainty-toolbox")
CHECKS = (skpro_example, skpro_adapter, toolbox_scores)

if __name__ == "__main__":
    main()
