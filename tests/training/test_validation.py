"""Validation: the best parameters are kept, runs stop, missing targets never score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import laplace, norm

from fisher8_jax import Gaussian
from fisher8_jax.families import Laplace, Poisson
from fisher8_jax.training import Data, LearningRate, LossGradient, Method, Plan, fit
from fisher8_jax.training._data import BatchLoader, make_folds
from fisher8_jax.training._method import with_runs
from fisher8_jax.training._run import start
from fisher8_jax.training._validation import start_validation, validate, validation_nll

RUNS, ROWS = 2, 40


def predict(params, inputs):
    outputs = inputs @ params["w"] + params["b"][None]
    return Gaussian(outputs[:, 0], outputs[:, 1])


def make_data():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS, 3))
    return Data(inputs, inputs[:, 0] + 0.1 * rng.normal(size=ROWS))


def make_params():
    rng = np.random.default_rng(1)
    return {"w": 0.1 * rng.normal(size=(RUNS, 3, 2)), "b": np.zeros((RUNS, 2))}


@pytest.fixture(scope="module")
def trained():
    method = with_runs(Method(LossGradient(), LearningRate(0.1)), RUNS)
    return start(method, make_params(), None, np.int32(10), np.float32(3.0))


def test_the_best_is_kept_and_a_stopped_run_stays_so(trained):
    found = start_validation(trained)

    def moved(amount):
        average = jax.tree.map(lambda leaf: leaf + amount, trained.average)
        state = trained.state._replace(step=jnp.full(RUNS, amount, jnp.int32))
        return trained._replace(state=state, average=average)

    found = validate(moved(1), found, np.array([3.0, np.nan]), patience_steps=2)
    found = validate(moved(2), found, np.array([2.0, -np.inf]), patience_steps=2)
    assert found.stopped.tolist() == [False, True]  # two steps without a number
    found = validate(moved(3), found, np.array([2.5, 1.0]), patience_steps=2)
    assert found.nll.tolist() == [2.0, np.inf]
    assert found.best_step.tolist() == [2, 0]
    average = moved(2).params["w"]
    np.testing.assert_allclose(found.best[0]["w"][0], average[0])


def test_held_out_rows_without_targets_never_score_zero(trained):
    data = make_data()
    where = np.arange(ROWS) % 2 == 0
    folds = make_folds(np.random.default_rng(2), ROWS, runs=RUNS, held_out=0.2)
    loader = BatchLoader(data._replace(where=where), folds, batch_size=8, seed=0)
    blocks = loader.validation_blocks()

    def nll(blocks):
        return validation_nll(predict, trained.params, None, blocks, shared=False)[:, 0]

    values = nll(blocks)
    for run in range(RUNS):
        rows = folds.held_out[run]
        rows = rows[where[rows]]
        params = jax.tree.map(lambda leaf, run=run: leaf[run], trained.params)
        expected = predict(params, data.inputs[rows]).nll(data.targets[rows])
        np.testing.assert_allclose(values[run], expected.mean(), rtol=1e-6)
    empty = [block._replace(where=np.zeros_like(block.where)) for block in blocks]
    assert np.isnan(nll(empty)).all()
    weightless = [block._replace(weights=np.zeros(block.where.shape)) for block in blocks]
    assert np.isnan(nll(weightless)).all()
    light = [block._replace(weights=np.full(block.where.shape, 1e-3)) for block in blocks]
    np.testing.assert_allclose(nll(light), values, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 7, 70])
def test_exactly_the_steps_of_the_plan_are_made(steps):
    plan = Plan(steps=steps, batch_size=8, num_validations=3, patience=None)
    found = fit(predict, make_params(), make_data(), plan, runs=RUNS, show_progress=False)
    assert found.steps == steps
    assert found.metrics["loss"].shape == (steps, RUNS)
    assert np.isfinite(found.metrics["loss"]).all()
    assert found.validation_steps[-1] == steps
    np.testing.assert_allclose(found.validation_nll, found.history.min(axis=0), rtol=1e-6)


def test_training_stops_early_and_a_run_without_a_score_keeps_its_last_parameters():
    blind = make_data()._replace(where=np.zeros(ROWS, bool))
    plan = Plan(steps=40, batch_size=8, num_validations=4, patience=0.2, average=None)
    found = fit(
        predict, make_params(), make_data(), plan, runs=RUNS, validation=blind, show_progress=False
    )
    assert found.steps == 10  # the first validation after 20 % of the steps without a better one
    assert np.isnan(found.validation_nll).all()
    jax.tree.map(np.testing.assert_array_equal, found.params, found.state.params)


@pytest.mark.parametrize(
    ("make", "log_density"),
    [
        (lambda x, s: Gaussian(x, 2 * s), lambda y, x, s: norm.logpdf(y, x, np.exp(s))),
        (Laplace, lambda y, x, s: laplace.logpdf(y, x, np.exp(s))),
    ],
)
def test_a_free_variance_has_the_factor_that_suits_all_runs_best(make, log_density):
    data = make_data()

    def network(params, inputs):
        outputs = inputs @ params["w"]
        return make(outputs[:, 0], outputs[:, 1] - 2)

    plan = Plan(steps=30, batch_size=20, validation_fraction=0.3, free_variance=True)
    params = {"w": make_params()["w"]}
    fitted = fit(network, params, data, plan, runs=RUNS, show_progress=False, diagnostics=False)
    assert fitted.best_step[0] == fitted.best_step[1]

    def expected(log_factor):
        found = []
        for run, rows in enumerate(fitted.validation_rows):
            dist = network({"w": fitted.params["w"][run]}, data.inputs[rows])
            x, s = (np.asarray(part, np.float64) for part in (dist.location, dist.log_scale))
            found.append(-log_density(data.targets[rows], x, s + 0.5 * log_factor).mean())
        return np.array(found)

    best = minimize_scalar(lambda log: expected(log).mean(), bounds=(-5, 7), method="bounded").x
    log_factor = np.log(fitted.variance_factor)
    assert abs(best) > 0.4
    assert abs(log_factor - best) <= 0.21  # half of the distance between factors
    np.testing.assert_allclose(fitted.validation_nll, expected(log_factor), rtol=1e-5)


def test_families_without_a_variance_are_validated_as_they_are():
    data = (np.ones(40, np.float32), np.random.default_rng(0).poisson(3, 40).astype(np.float32))
    params = {"log_rate": jnp.zeros(())}

    def network(params, inputs):
        return Poisson(params["log_rate"] * inputs)

    plain, free = (
        fit(network, params, data, Plan(9, free_variance=is_free), show_progress=False)
        for is_free in (False, True)
    )
    np.testing.assert_allclose(free.validation_nll, plain.validation_nll, rtol=1e-6)
    assert plain.variance_factor == free.variance_factor == 1
    assert plain.best_step == free.best_step
