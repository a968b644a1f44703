"""Every mistake has a message that names the argument and the fix."""

import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.posterior import (
    Prior,
    batch_evidence,
    fit_posterior,
    jackknife_intervals,
    leave_one_out,
    update_precision,
)
from tests.posterior.dense import draw, linear, mlp_problem

X, Y = draw(0, 6, 3), draw(1, 6)
PARAMS = {"mean": draw(2, 3), "log_variance": draw(3, 3)}


def fit(params=PARAMS, x=X, y=Y, **options):
    return fit_posterior(linear, params, x, y, **{"tune": False, **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X[:0], "y": Y[:0]}, "must have at least one row, got none"),
        ({"y": Y[:4]}, "must share their first axis, the rows"),
        ({"y": Y[:, None]}, "`targets` must have the shape of the predictions"),
        ({"y": np.where(Y > 0, np.nan, Y)}, "`targets`"),
        ({"params": {**PARAMS, "mean": np.full(3, np.nan)}}, "not finite at 'mean'"),
        ({"x": np.where(X > 1, np.inf, X)}, "not finite on the training rows"),
        ({"prior": Prior(0.0)}, "`precision` must be positive, got 0.0"),
        ({"prior": Prior(-1.0)}, "`precision` must be positive"),
        ({"prior": Prior(float("inf"))}, "leave them out of `groups`"),
        ({"prior": Prior({"mean": 1.0})}, "a number for each of the groups"),
        ({"prior": Prior(groups={"a": ["nothing"]})}, "no parameter has that path. There are: "),
        ({"prior": Prior(groups={"a": ["mean"], "b": ["mean"]})}, "in two groups"),
        ({"prior": Prior(groups="some")}, "`groups` must be 'leaves', 'one' or a mapping"),
        ({"prior": Prior(mean={"mean": 0.0})}, "`mean` of the prior must be a tree like"),
        ({"prior": Prior(mean={**PARAMS, "mean": np.zeros(2)})}, r"has shape \(2,\) at 'mean'"),
        ({"prior": Prior(mean={**PARAMS, "mean": np.full(3, np.nan)})}, "not finite at 'mean'"),
        ({"form": "dense"}, "`form` must be one of auto, dual"),
        ({"form": "dual", "memory": 100.0}, "Raise `memory`"),
        ({"form": "primal", "memory": 100.0}, "needs 0.0 GB for 6 rows of 2 outputs, 6 parameters"),
        ({"memory": 0}, "`memory` must be positive"),
        ({"tune": "loo"}, "`tune` must be one of evidence"),
        ({"dtype": "bfloat16"}, "`dtype` must be one of float64, float32"),
    ],
)
def test_values(change, message):
    with pytest.raises(ValueError, match=message):
        fit(**change)


def test_types():
    with pytest.raises(TypeError, match="`prior` must be a `Prior`, got float"):
        fit(prior=1.0)
    with pytest.raises(TypeError, match="the result of `predict_one`"):
        fit_posterior(lambda params, x: x @ params["mean"], PARAMS, X, Y)


def test_one_row():
    posterior = fit(x=X[:1], y=Y[:1])
    assert np.isfinite(posterior.log_evidence)
    assert np.all(np.isfinite(leave_one_out(posterior).nll))
    with pytest.raises(ValueError, match=r"`coverage` 0\.9 needs at least 9 rows"):
        jackknife_intervals(posterior, X)


@pytest.mark.parametrize("damping", [-0.1, float("nan")])
def test_damping_of_leave_one_out(damping):
    with pytest.raises(ValueError, match="`damping` must not be negative"):
        leave_one_out(fit(), damping=damping)


def test_leaves_that_are_empty_unused_or_integers_are_fixed():
    odd = {**PARAMS, "empty": np.zeros((0, 3)), "unused": np.ones(2), "count": np.array(3)}
    assert fit(odd).report.groups == ("log_variance", "mean")
    assert fit(odd).log_evidence == fit().log_evidence
    with pytest.raises(ValueError, match=r"The groups \['a'\] of `groups` have no leaf"):
        fit(odd, prior=Prior(groups={"a": ["unused"]}))
    with pytest.raises(ValueError, match="No parameter reaches the predictions"):
        fit_posterior(lambda p, x: Gaussian(x[0], x[1]), {"a": np.ones(2)}, X, Y)


def test_float32_that_is_not_enough():
    x = np.repeat(draw(0, 40, 1), 3, 1)
    prior = Prior(1e-2, "one")

    def certain(params, x):
        return Gaussian(x @ params, jnp.full((), -18.0, x.dtype))

    with pytest.raises(ValueError, match="not positive definite in float32"):
        fit_posterior(
            certain, np.ones(3), x, x.sum(1), prior=prior, tune=False, form="dual", dtype="float32"
        )
    found = fit_posterior(certain, np.ones(3), x, x.sum(1), prior=prior, tune=False)
    assert np.isfinite(found.log_evidence)
    with pytest.raises(ValueError, match=r"not positive definite in float64.*Use a larger"):
        fit_posterior(
            certain, np.ones(3), x, x.sum(1), prior=Prior(1e-8, "one"), tune=False, form="dual"
        )


def test_no_layer_is_last():
    def predict_one(params, x):
        return Gaussian(jnp.exp(x @ params), jnp.zeros(()))

    with pytest.raises(ValueError, match="found no parameter in which the outputs are affine"):
        fit_posterior(predict_one, np.ones(3), X, Y, form="last_layer")


def test_a_network_in_lower_precision_is_noted():
    def predict_one(params, x):
        dist = linear(params, x)
        return Gaussian(dist.mean.astype(jnp.float32), dist.log_variance.astype(jnp.float32))

    posterior = fit_posterior(predict_one, PARAMS, X, Y, tune=False)
    assert "computes in float32 whatever its parameters are" in posterior.describe()
    assert abs(posterior.log_evidence / fit().log_evidence - 1) < 1e-5


def test_batch_evidence_and_updates():
    predict_one, params, x, y = mlp_problem(rows=4)
    with pytest.raises(ValueError, match="one number for each of the 4 groups, bias, first"):
        batch_evidence(predict_one, params, x, y, jnp.zeros(2))
    with pytest.raises(ValueError, match="`rows` must be an integer of at least 4"):
        batch_evidence(predict_one, params, x, y, jnp.zeros(4), rows=3)
    found = batch_evidence(predict_one, params, x, y, jnp.zeros(4))
    with pytest.raises(ValueError, match="`max_step` must be positive"):
        update_precision(jnp.zeros(4), found, max_step=0)
    with pytest.raises(ValueError, match="`samples` must be a positive integer"):
        fit().predict(X, samples=0)
    with pytest.raises(ValueError, match="`inputs` must be arrays whose first axis is the rows"):
        fit().predict(X[:0])


def test_running_statistics_stand_still():
    """Of a batch norm: in a closure, or as leaves in no group."""
    shift, scale = draw(4, 3), np.exp(draw(5, 3))

    def closed(params, x):
        return linear(params, (x - shift) / scale)

    def stored(tree, x):
        return linear(tree["net"], (x - tree["shift"]) / tree["scale"])

    groups = {name: [f"net/{name}"] for name in PARAMS}
    tree = {"net": PARAMS, "shift": shift, "scale": scale}
    found = fit_posterior(stored, tree, X, Y, prior=Prior(groups=groups), tune=False)
    expected = fit_posterior(closed, PARAMS, X, Y, tune=False)
    assert abs(found.log_evidence / expected.log_evidence - 1) < 1e-12
    assert set(found.effective_parameters) == set(PARAMS)
