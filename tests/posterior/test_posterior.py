"""Priors, forms, samples, families, arithmetic, saving, transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.families import Categorical, MultivariateGaussian, Poisson, StudentT
from fisher8_jax.posterior import (
    Prior,
    batch_evidence,
    fit_posterior,
    jackknife_intervals,
    leave_one_out,
    load_posterior,
    save_posterior,
)
from tests.curvature.networks import NETWORKS
from tests.posterior.dense import dense, draw, jacobian_of, linear, mlp, mlp_problem, worst


@pytest.fixture(scope="module")
def fitted():
    predict_one, params, x, y = mlp_problem(rows=20)
    return fit_posterior(predict_one, params, x, y, form="dual")


@pytest.mark.parametrize("name", ["cnn", "attention"])
def test_any_network(name):
    predict_one, params, inputs = NETWORKS[name]()
    targets = draw(0, len(inputs))
    precision = jax.tree.map(lambda leaf: 1.5, params)
    reference = dense(predict_one, params, inputs, targets, precision)
    posterior = fit_posterior(
        predict_one, params, inputs, targets, prior=Prior(1.5, "one"), tune=False, form="dual"
    )
    expected = reference.output_covariance(reference.jacobian)
    assert worst(posterior.output_covariance(inputs), expected) < 1e-8
    assert abs(posterior.log_evidence / reference.log_evidence - 1) < 1e-9


def test_chunks_change_nothing():
    predict_one, params, x, y = mlp_problem(rows=23)
    new = draw(9, 11, 3)
    for form in ("dual", "primal"):
        whole, parts = (
            fit_posterior(predict_one, params, x, y, tune=False, form=form, memory=memory)
            for memory in (2e9, 2e5)
        )
        assert parts.report.chunk < 11 < whole.report.chunk
        assert worst(parts.output_covariance(new), whole.output_covariance(new)) < 1e-10
        assert worst(leave_one_out(parts).nll, leave_one_out(whole).nll) < 1e-9
        for a, b in zip(
            jackknife_intervals(parts, new, 0.8), jackknife_intervals(whole, new, 0.8), strict=True
        ):
            assert worst(a, b) < 1e-9


def test_groups_by_name_fix_the_other_leaves():
    predict_one, params, x, y = mlp_problem()
    prior = Prior({"last": 2.0}, {"last": ["head"]})
    posterior = fit_posterior(predict_one, params, x, y, prior=prior, tune=False)

    def of_head(head, example):
        return predict_one({**params, **head}, example)

    head = {"head": params["head"]}
    reference = dense(of_head, head, x, y, {"head": 2.0})
    assert abs(posterior.log_evidence / reference.log_evidence - 1) < 1e-10
    expected = reference.output_covariance(reference.jacobian)
    assert worst(posterior.output_covariance(x), expected) < 1e-9
    by_itself = fit_posterior(
        predict_one, params, x, y, form="last_layer", prior=Prior(2.0), tune=False
    )
    assert by_itself.report.groups == ("head",)
    assert abs(by_itself.log_evidence - posterior.log_evidence) < 1e-9
    assert "all others fixed" in by_itself.describe()


def test_a_prior_mean_moves_the_penalty_only():
    predict_one, params, x, y = mlp_problem()
    mean = jax.tree.map(lambda leaf: leaf + 0.5, params)
    about_zero, about_mean = (
        fit_posterior(predict_one, params, x, y, prior=Prior(1.5, "one", m), tune=False)
        for m in (None, mean)
    )
    number = sum(leaf.size for leaf in params.values())
    squares = sum(np.sum(leaf**2) for leaf in params.values())
    difference = 0.5 * 1.5 * (squares - number * 0.25)
    assert abs(about_mean.log_evidence - about_zero.log_evidence - difference) < 1e-9


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_samples_have_the_covariance(form):
    x, y, new = draw(0, 8, 3), draw(1, 8), draw(2, 2, 3)
    params = {"mean": draw(3, 3), "log_variance": draw(4, 3) / 3}
    posterior = fit_posterior(linear, params, x, y, tune=False, form=form)
    key, number = jax.random.key(1), 20_000
    functions = posterior.sample_functions(key, new, number)
    vectors = np.asarray(functions.to_vector()).reshape(number, -1)
    expected = np.asarray(posterior.joint_covariance(new)).reshape(4, 4)
    # the standard error of an entry is below sqrt(2 / 20,000) = 0.01 of the largest
    assert worst(np.cov(vectors.T), expected) < 0.05
    drawn = posterior.sample_params(key, number)
    assert drawn["mean"].shape == (number, 3)
    assert worst(drawn["mean"] @ new.T, functions.mean) < 1e-10  # it is linear


def test_the_mixture_has_the_moments_of_the_closed_form(fitted):
    new = draw(9, 4, 3)
    closed, mixture = fitted.predict(new), fitted.predict(new, samples=4000)
    assert worst(closed.variance, closed.dist.variance) < 1e-12
    assert worst(mixture.epistemic, closed.epistemic) < 0.1  # standard error 2 %
    assert worst(mixture.aleatoric, closed.aleatoric) < 0.1
    assert worst(mixture.mean, closed.mean) < 0.05


FAMILIES = {
    "categorical": (lambda f: Categorical(f[:3]), np.array([0, 1, 2, 1, 0, 2])),
    "poisson": (lambda f: Poisson(f[0]), np.array([0.0, 1, 2, 3, 0, 1])),
    "student": (lambda f: StudentT(f[0], f[1], df=4.0), draw(7, 6)),
    "several": (lambda f: Gaussian(f[:2], f[2:4]), draw(7, 6, 2)),
    "vector": (
        lambda f: MultivariateGaussian(f[:2], f[2:4], f[4:5]),
        draw(7, 6, 2),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_any_family(name):
    make, targets = FAMILIES[name]

    def predict_one(params, x):
        return make(x @ params)

    params, x = draw(1, 3, 5) / 3, draw(2, 6, 3)
    dual, primal = (
        fit_posterior(predict_one, params, x, targets, tune=False, form=form)
        for form in ("dual", "primal")
    )
    dist = jax.vmap(predict_one, (None, 0))(params, x)
    jacobian = jacobian_of(predict_one, params, x).reshape(len(x), -1, params.size)
    unit = jnp.eye(dist.to_vector().shape[-1])

    def fisher_times(u):
        spread = jnp.broadcast_to(u, dist.to_vector().shape)
        return dist.fisher(dist.from_vector(spread)).to_vector()

    blocks = np.moveaxis(np.asarray(jax.vmap(fisher_times)(unit)), 0, -1)
    size = unit.shape[0]
    elements = jacobian.reshape(-1, size, params.size)
    hessian = np.einsum("eap,eab,ebq->pq", elements, blocks.reshape(-1, size, size), elements)
    covariance = np.linalg.inv(hessian + np.eye(params.size))
    expected = np.einsum("iap,pq,ibq->iab", jacobian, covariance, jacobian)
    for posterior in (dual, primal):
        assert worst(posterior.output_covariance(x), expected) < 1e-7
        predicted = posterior.predict(x)
        assert np.all(np.isfinite(predicted.nll(targets)))
        found = leave_one_out(posterior)
        assert found.nll.shape == dist.batch_shape
        assert np.mean(found.nll) > np.mean(dist.nll(targets)) - 0.2
    for damping in (0.0, 0.1):
        left_out = (leave_one_out(form, damping=damping).nll for form in (dual, primal))
        assert worst(*left_out) < 1e-6


def test_float32_is_near_float64():
    predict_one, params, x, y = mlp_problem(rows=40)
    new = draw(9, 5, 3)
    for form in ("dual", "primal"):
        wide, narrow = (
            fit_posterior(predict_one, params, x, y, tune=False, form=form, dtype=dtype)
            for dtype in ("float64", "float32")
        )
        assert abs(narrow.log_evidence / wide.log_evidence - 1) < 1e-3
        assert worst(narrow.output_covariance(new), wide.output_covariance(new)) < 1e-3
        assert narrow.factor.dtype == np.float32
        left_out = [leave_one_out(dist, damping=0.1).nll for dist in (wide, narrow)]
        np.testing.assert_allclose(*left_out, rtol=1e-3, atol=1e-3)


def test_saving(tmp_path, fitted):
    path = tmp_path / "posterior.f8"
    save_posterior(path, fitted)
    loaded = load_posterior(path, mlp, fitted.params)
    new = draw(9, 5, 3)
    for a, b in zip(
        jax.tree.leaves(loaded.predict(new)), jax.tree.leaves(fitted.predict(new)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert loaded.report == fitted.report
    assert loaded.log_evidence == fitted.log_evidence
    assert loaded.describe() == fitted.describe()
    with pytest.raises(ValueError, match="`params` must have the structure that was saved, 4"):
        load_posterior(path, mlp, {})


def test_under_jit_and_vmap(fitted):
    new = draw(9, 6, 3)
    expected = fitted.predict(new)

    def scores(posterior, x):
        dist = posterior.predict(x)
        return dist.mean, dist.epistemic, dist.nll(jnp.zeros(len(x)))

    wanted = expected.mean, expected.epistemic, expected.nll(jnp.zeros(6))
    compiled = jax.jit(scores)(fitted, new)
    mapped = jax.vmap(lambda x: scores(fitted, x[None]))(jnp.asarray(new))
    for found in (compiled, mapped):
        for one, other in zip(found, wanted, strict=True):
            assert worst(jnp.ravel(one), other) < 1e-9
    single = jax.jit(lambda posterior, x: posterior.predict(x))
    with jax.enable_x64(False):
        narrow = single(fitted, new.astype(np.float32))
        assert narrow.mean.dtype == jnp.float32
        assert fitted.predict(new.astype(np.float32)).mean.dtype == jnp.float32
    assert worst(narrow.epistemic, expected.epistemic) < 1e-2


def test_the_evidence_of_batches_is_a_lower_bound(fitted):
    predict_one, params, x, y = mlp_problem(rows=20)
    prior = Prior(groups="leaves")
    lp = jnp.asarray(fitted.log_precision)
    exact = batch_evidence(predict_one, params, x, y, lp, prior=prior)
    assert abs(exact.log_evidence - fitted.log_evidence) < 1e-8
    assert worst(exact.gradient, fitted.evidence.gradient) < 1e-8
    evaluate = jax.jit(
        lambda x, y: batch_evidence(predict_one, params, x, y, lp, rows=20).log_evidence
    )
    batches = [evaluate(x[i : i + 5], y[i : i + 5]) for i in range(0, 20, 5)]
    assert np.mean(batches) < fitted.log_evidence
    by_grad = jax.grad(lambda lp: batch_evidence(predict_one, params, x, y, lp).log_evidence)(lp)
    assert worst(by_grad, exact.gradient) < 1e-8


def test_large_data_take_an_approximation_and_say_so():
    predict_one, params, x, y = mlp_problem(rows=600)
    few = fit_posterior(predict_one, params, x, y, memory=1.5e4, tune=False)
    assert few.report.form == "last_layer"

    def nonlinear(params, x):
        return Gaussian(jnp.exp(x @ params), jnp.zeros(()))

    wide, weights = np.repeat(x, 20, 1), draw(0, 60) / 9
    part = fit_posterior(nonlinear, weights, wide, y, memory=4e4, tune=False)
    assert part.report.form == "subset"
    assert part.report.rows < 600
    assert f"{part.report.rows} of 600 rows" in part.describe()
    tuned = fit_posterior(predict_one, params, x, y)  # 1,200 unknowns in the dual form, 55 params
    assert tuned.report.form == "primal"
    blocks = fit_posterior(predict_one, params, x, y, form="dual")  # starts by blocks
    assert worst(blocks.log_precision, tuned.log_precision) < 0.1


@pytest.mark.parametrize("form", ["dual", "last_layer"])
def test_a_second_fit_traces_nothing(form):
    predict_one, params, x, y = mlp_problem()
    calls = []

    def counted(params, x):
        calls.append(1)
        return predict_one(params, x)

    first = fit_posterior(counted, params, x, y, form=form)
    number = len(calls)
    second = fit_posterior(counted, params, x, y, form=form)
    assert 0 < number == len(calls)
    assert second.log_evidence == first.log_evidence
