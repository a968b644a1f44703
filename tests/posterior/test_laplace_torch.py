"""Against laplace-torch 0.3, full structure over all weights, in an environment of its own.

`laplace_torch.json` holds what it printed for the network below: torch 2.13.0, float64, a
`Laplace(model, 'regression', 'all', 'full', prior_precision=0.7, sigma_noise=0.4)` fitted on the
rows below, its `log_det_ratio`, `log_marginal_likelihood()` and the mean and variance of its
linearised predictive at the new inputs.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.posterior import Prior, fit_posterior
from tests.posterior.dense import draw, worst

STORED = json.loads(pathlib.Path(__file__).with_name("laplace_torch.json").read_text())
PARAMS = {
    "first": draw(1, 3, 6) / 2,
    "first_bias": draw(2, 6) / 3,
    "second": draw(3, 6, 5) / 2,
    "second_bias": draw(4, 5) / 3,
    "third": draw(5, 5, 1) / 2,
    "third_bias": draw(6, 1),
}


def predict_one(params, x):
    hidden = jnp.tanh(x @ params["first"] + params["first_bias"])
    hidden = jnp.tanh(hidden @ params["second"] + params["second_bias"])
    mean = hidden @ params["third"] + params["third_bias"]
    return Gaussian(mean[0], jnp.asarray(2 * np.log(STORED["sigma_noise"])))


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_log_determinant_evidence_and_functional_variance(form):
    inputs, targets, new = draw(7, 40, 3), draw(8, 40), draw(9, 9, 3)
    prior = Prior(STORED["prior_precision"], "one")
    fitted = fit_posterior(predict_one, PARAMS, inputs, targets, prior=prior, tune=False, form=form)
    log_det = fitted.system.log_det(fitted.factor)
    assert abs(log_det / STORED["log_det_ratio"] - 1) < 1e-9
    assert abs(fitted.log_evidence / STORED["log_marginal_likelihood"] - 1) < 1e-9
    dist = fitted.predict(new)
    assert worst(dist.mean, STORED["functional_mean"]) < 1e-9
    assert worst(dist.epistemic, STORED["functional_variance"]) < 1e-9
