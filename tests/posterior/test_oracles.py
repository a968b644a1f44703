"""Against closed forms, other programs and refits, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from fisher8_jax import Gaussian
from fisher8_jax.posterior import Prior, fit_posterior, jackknife_intervals, leave_one_out
from tests.posterior.dense import (
    dense,
    draw,
    jacobian_of,
    known_noise,
    linear,
    mlp_problem,
    worst,
)

FORMS = ("dual", "primal")
PRECISION = {"slope": 2.0, "offset": 0.3}


def regression(rows=12):
    """Bayesian linear regression whose noise is known, and its solution in closed form."""
    x, new = draw(0, rows, 3), draw(1, 5, 3)
    y = x @ [1.0, -2.0, 0.5] + draw(2, rows)
    design, new_design = (np.c_[np.ones(len(a)), a] for a in (x, new))
    noise = np.exp(np.sin(x[:, 0]))
    prior = np.diag([PRECISION["offset"], *[PRECISION["slope"]] * 3])
    covariance = np.linalg.inv(design.T @ (design / noise[:, None]) + prior)
    mean = covariance @ design.T @ (y / noise)
    params = {"slope": mean[1:], "offset": mean[0]}
    return x, y, noise, design, new, new_design, prior, covariance, params


@pytest.mark.parametrize("form", FORMS)
def test_bayesian_linear_regression(form):
    x, y, noise, design, new, new_design, prior, covariance, params = regression()
    fitted = fit_posterior(known_noise, params, x, y, prior=Prior(PRECISION), tune=False, form=form)
    marginal = np.diag(noise) + design @ np.linalg.inv(prior) @ design.T
    expected = -0.5 * (
        y @ np.linalg.solve(marginal, y)
        + np.linalg.slogdet(marginal)[1]
        + len(y) * np.log(2 * np.pi)
    )
    assert abs(fitted.log_evidence / expected - 1) < 1e-10
    dist = fitted.predict(new)
    epistemic = np.einsum("ip,pq,iq->i", new_design, covariance, new_design)
    assert worst(dist.epistemic, epistemic) < 1e-10
    assert worst(dist.aleatoric, np.exp(np.sin(new[:, 0]))) < 1e-10
    assert worst(dist.mean, new_design @ [params["offset"], *params["slope"]]) < 1e-10
    assert worst(dist.variance, dist.dist.variance) < 1e-12
    joint = fitted.joint_covariance(new, x)[:, 0, :, 0]
    assert worst(joint, new_design @ covariance @ design.T) < 1e-10


@pytest.mark.parametrize("form", FORMS)
def test_leave_one_out_is_a_refit_of_a_linear_network(form):
    x, y, noise, design, _, _, prior, _, params = regression()
    fitted = fit_posterior(known_noise, params, x, y, prior=Prior(PRECISION), tune=False, form=form)
    found = leave_one_out(fitted)
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        covariance = np.linalg.inv(design[kept].T @ (design[kept] / noise[kept, None]) + prior)
        mean = covariance @ design[kept].T @ (y[kept] / noise[kept])
        variance = design[i] @ covariance @ design[i]
        assert abs(found.outputs.mean[i] - design[i] @ mean) < 1e-10
        assert abs(found.covariance[i, 0, 0] - variance) < 1e-10
        z = (y[i] - design[i] @ mean) / np.sqrt(variance + noise[i])
        nll = 0.5 * (z**2 + np.log(2 * np.pi * (variance + noise[i])))
        assert abs(found.nll[i] - nll) < 1e-10
        assert abs(found.pit[i] - jax.scipy.stats.norm.cdf(z)) < 1e-10


@pytest.mark.parametrize("form", FORMS)
def test_damped_leave_one_out_shifts_as_under_a_stronger_prior(form):
    x, y, noise, design, _, _, prior, _, _ = regression()
    start = draw(7, 4)
    params = {"slope": start[1:], "offset": start[0]}
    fitted = fit_posterior(known_noise, params, x, y, prior=Prior(PRECISION), tune=False, form=form)
    found, plain = leave_one_out(fitted, damping=0.25), leave_one_out(fitted)
    np.testing.assert_array_equal(found.covariance, plain.covariance)
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        information = design[kept].T @ (design[kept] / noise[kept, None])
        stronger = np.linalg.inv(information + prior + 0.25 * len(y) * np.eye(4))
        gradient = (design[i] @ start - y[i]) / noise[i]
        mean = design[i] @ start + design[i] @ stronger @ design[i] * gradient
        assert abs(found.outputs.mean[i] - mean) < 1e-10
        z = (y[i] - mean) / np.sqrt(found.covariance[i, 0, 0] + noise[i])
        assert abs(found.pit[i] - norm.cdf(z)) < 1e-10
    assert worst(plain.outputs.mean, found.outputs.mean) > 0.1


def test_jackknife_intervals_are_those_of_refits():
    x, y, noise, design, new, new_design, prior, covariance, params = regression(40)
    fitted = fit_posterior(known_noise, params, x, y, prior=Prior(PRECISION), tune=False)
    low, high = [], []
    std = np.sqrt(
        np.exp(np.sin(new[:, 0])) + np.einsum("ip,pq,iq->i", new_design, covariance, new_design)
    )
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        inverse = np.linalg.inv(design[kept].T @ (design[kept] / noise[kept, None]) + prior)
        mean = inverse @ design[kept].T @ (y[kept] / noise[kept])
        own = np.sqrt(noise[i] + design[i] @ inverse @ design[i])
        residual = abs(y[i] - design[i] @ mean) / own
        low.append(new_design @ mean - residual * std)
        high.append(new_design @ mean + residual * std)
    # 41 * 0.1 = 4.1, so the 4th smallest; 41 * 0.9 = 36.9, so the 37th
    expected = np.sort(low, 0)[3], np.sort(high, 0)[36]
    for found, wanted in zip(jackknife_intervals(fitted, new, 0.9), expected, strict=True):
        assert worst(found, wanted) < 1e-8


def test_a_gaussian_process_with_the_same_kernel():
    x, y, new = draw(0, 20, 3), draw(1, 20), draw(2, 6, 3)
    kernel = ConstantKernel(1 / 2.0) * DotProduct(0.0, "fixed") + ConstantKernel(1 / 0.3)
    process = GaussianProcessRegressor(kernel, alpha=0.25, optimizer=None).fit(x, y)
    mean, std = process.predict(new, return_std=True)
    design = np.c_[np.ones(20), x]
    solution = np.linalg.solve(
        design.T @ design / 0.25 + np.diag([0.3, 2, 2, 2]), design.T @ y / 0.25
    )

    def predict_one(params, x):
        return Gaussian(x @ params["slope"] + params["offset"], jnp.log(0.25))

    params = {"slope": solution[1:], "offset": solution[0]}
    fitted = fit_posterior(predict_one, params, x, y, prior=Prior(PRECISION), tune=False)
    dist = fitted.predict(new)
    assert worst(dist.mean, mean) < 1e-8
    assert worst(dist.epistemic, std**2) < 1e-8
    assert abs(fitted.log_evidence - process.log_marginal_likelihood_value_) < 1e-8


@pytest.mark.parametrize("form", FORMS)
def test_a_learned_noise(form):
    x, y, new = draw(0, 15, 4), draw(1, 15), draw(2, 6, 4)
    params = {"mean": draw(3, 4), "log_variance": draw(4, 4) / 3}
    precision = {"mean": 0.7, "log_variance": 3.0}
    reference = dense(linear, params, x, y, precision)
    fitted = fit_posterior(linear, params, x, y, prior=Prior(precision), tune=False, form=form)
    covariance = reference.output_covariance(jacobian_of(linear, params, new))
    assert worst(fitted.output_covariance(new), covariance) < 1e-9
    assert abs(fitted.log_evidence / reference.log_evidence - 1) < 1e-10
    dist = fitted.predict(new)
    s = new @ params["log_variance"]
    nodes = norm.ppf((np.arange(7) + 0.5) / 7)
    nodes = nodes / nodes.std()
    noise = np.exp(s + np.sqrt(covariance[:, 1, 1]) * nodes[:, None])
    assert worst(dist.aleatoric, noise.mean(0)) < 1e-9
    assert worst(dist.aleatoric, np.exp(s + 0.5 * covariance[:, 1, 1])) < 0.05  # of all quantiles
    assert worst(dist.epistemic, covariance[:, 0, 0]) < 1e-9


def test_both_forms_and_the_dense_one_agree_for_a_network():
    predict_one, params, x, y = mlp_problem()
    precision = {"first": 0.5, "bias": 2.0, "second": 1.5, "head": 0.2}
    reference = dense(predict_one, params, x, y, precision)
    dual, primal = (
        fit_posterior(predict_one, params, x, y, prior=Prior(precision), tune=False, form=form)
        for form in FORMS
    )
    new = draw(9, 7, 3)
    covariance = reference.output_covariance(jacobian_of(predict_one, params, new))
    for fitted in (dual, primal):
        assert abs(fitted.log_evidence / reference.log_evidence - 1) < 1e-10
        assert worst(fitted.output_covariance(new), covariance) < 1e-8
    assert worst(dual.evidence.effective, primal.evidence.effective) < 1e-9
    assert worst(dual.evidence.gradient, primal.evidence.gradient) < 1e-9
    for a, b in zip(
        jax.tree.leaves(leave_one_out(dual)), jax.tree.leaves(leave_one_out(primal)), strict=True
    ):
        assert worst(a, b) < 1e-8
    # sum over a group of 1 - precision * variance
    variances = np.diag(reference.covariance)
    size = np.size(params["bias"])
    assert abs(dual.effective_parameters["bias"] - (size - 2.0 * variances[:size].sum())) < 1e-8


def test_the_gradient_of_the_evidence():
    predict_one, params, x, y = mlp_problem()
    fitted = fit_posterior(predict_one, params, x, y, tune=False)
    system = fitted.system

    def log_evidence(log_precision):
        factor = system.factorize(log_precision)
        penalty = jnp.sum(jnp.exp(log_precision) * fitted.evidence.squares)
        return -0.5 * penalty - 0.5 * system.log_det(factor)

    by_autodiff = jax.grad(log_evidence)(fitted.log_precision)
    assert worst(fitted.evidence.gradient, by_autodiff) < 1e-9


def test_tuning_ends_at_the_maximum_of_the_evidence():
    predict_one, params, x, y = mlp_problem(rows=30)
    fitted = fit_posterior(predict_one, params, x, y, prior=Prior(groups="one"), tune="evidence")
    values = [
        fit_posterior(
            predict_one,
            params,
            x,
            y,
            prior=Prior(factor * fitted.precision["all"], "one"),
            tune=False,
        ).log_evidence
        for factor in (0.8, 1, 1.25)
    ]
    assert values[1] > max(values[0], values[2])
    raised = fit_posterior(predict_one, params, x, y, prior=Prior(groups="one"))
    number = sum(np.size(leaf) for leaf in params.values())
    ratio = number / fitted.effective_parameters["all"]
    assert abs(raised.precision["all"] / fitted.precision["all"] / ratio**0.5 - 1) < 0.03
    assert abs(values[1] - fitted.log_evidence) < 1e-8


@pytest.mark.parametrize("form", FORMS)
def test_effective_numbers_on_the_host_are_those_of_the_compiled_program(form):
    predict_one, params, x, y = mlp_problem(rows=16)
    fitted = fit_posterior(predict_one, params, x, y, tune=False, form=form)
    shifted = np.asarray(fitted.log_precision) + np.linspace(-1, 2, len(fitted.log_precision))
    expected = fitted.system.effective(fitted.system.factorize(shifted), shifted)
    assert worst(fitted.system.effective_on_host(shifted), expected) < 1e-9
    if form == "dual":
        blocks = fitted.system.blocks(np.arange(len(y)).reshape(2, -1))
        halves = [fitted.system.blocks(np.array([half])) for half in np.split(np.arange(len(y)), 2)]
        found = sum(half.effective_on_host(shifted) for half in halves)
        assert worst(blocks.effective_on_host(shifted), found) < 1e-12


def test_rounds_on_blocks_end_near_the_maximum_of_the_evidence():
    predict_one, params, x, y = mlp_problem(rows=300)
    exact = fit_posterior(predict_one, params, x, y, tune="evidence", form="dual")
    gradient = exact.evidence.gradient / np.maximum(exact.evidence.effective, 1)
    assert np.abs(gradient).max() < 0.1


@pytest.mark.parametrize("form", FORMS)
def test_outputs_move_to_the_optimum_within_a_radius(form):
    """One Newton step solves a linear network; the prior is around the parameters."""
    x, y, noise, design, new, new_design, _, covariance, _ = regression()
    start = draw(7, 4)
    params = {"slope": start[1:], "offset": start[0]}
    fitted = fit_posterior(known_noise, params, x, y, prior=Prior(PRECISION), tune=False, form=form)
    step = covariance @ design.T @ ((y - design @ start) / noise)
    divergence = np.mean((design @ step) ** 2 / noise) / 2
    far = fitted.predict(new, max_kl=2 * divergence)
    assert worst(far.mean, new_design @ (start + step)) < 1e-9
    near = fitted.predict(new, max_kl=divergence / 4)
    assert worst(near.mean, new_design @ (start + step / 2)) < 1e-9
    assert worst(near.epistemic, fitted.predict(new).epistemic) < 1e-12
    with pytest.raises(ValueError, match="`max_kl` must be"):
        fitted.predict(new, max_kl=0.0)


@pytest.mark.parametrize("form", FORMS)
def test_parameters_that_have_not_converged_are_told(form):
    x, y, noise, design, _, _, _, covariance, _ = regression()
    start = 10 * draw(7, 4)
    step = covariance @ design.T @ ((y - design @ start) / noise)
    divergence = np.mean((design @ step) ** 2 / noise) / 2

    def fitted(vector):
        params = {"slope": vector[1:], "offset": vector[0]}
        return fit_posterior(
            known_noise, params, x, y, prior=Prior(PRECISION), tune=False, form=form
        )

    weighted = design.T / noise
    best = np.linalg.solve(weighted @ design, weighted @ y)
    before, after = fitted(start), fitted(best)
    assert worst(before.step_kl, divergence) < 1e-9
    assert not before.is_converged
    assert f"have not converged: a Newton step would move the predictions by {divergence:.2g}" in (
        before.describe()
    )
    assert after.is_converged
    assert "converged" not in after.describe()
