"""Training by evidence: one step against a dense solve, and what a training ends with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fisher8_jax import Gaussian
from fisher8_jax.posterior import Prior, _tuning, fit_posterior, train_by_evidence
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._prior import Groups, resolve
from fisher8_jax.posterior._train import _Progress, _Rule, _step
from fisher8_jax.posterior._tuning import update_by_part
from tests.posterior.dense import dense, draw, mlp, mlp_problem, worst


def test_a_step_is_the_damped_solution_with_the_penalty():
    predict_one, params, x, y = mlp_problem(rows=8)
    precision = {"bias": 1.0, "first": 2.0, "head": 3.0, "second": 4.0}
    groups = Groups(tuple(precision), (0, 1, 2, 3), (0, 1, 2, 3))
    rule = _Rule(predict_one, groups, rows=40, steps=10, damping=0.3, max_kl=1e9)
    means = [np.full(np.shape(leaf), 0.1) for leaf in jax.tree.leaves(params)]
    progress = _Progress(params, jnp.asarray(4))
    log_precision = jnp.log(jnp.asarray(list(precision.values())))
    step, value = jax.jit(lambda p: _step(rule, p, log_precision, (x, y), means))(progress)

    reference = dense(predict_one, params, x, y, precision)
    hessian = np.einsum("iap,iab,ibq->pq", reference.jacobian, reference.fisher, reference.jacobian)
    flat, unravel = ravel_pytree(params)

    def objective(flat):
        nll = jax.vmap(predict_one, (None, 0))(unravel(flat), x).nll(y).mean()
        return nll + 0.5 * jnp.sum(reference.precision * jnp.square(flat - 0.1)) / 40

    floor = 0.3 * 0.1**0.6  # 4 of 10 steps are done
    damped = hessian / 8 + floor * np.eye(flat.size) + np.diag(reference.precision) / 40
    expected = 0.6 * np.linalg.solve(damped, jax.grad(objective)(flat))
    assert worst(ravel_pytree(step)[0], expected) < 1e-8
    assert abs(value - reference.nll.mean()) < 1e-10

    limited = rule._replace(max_kl=1e-4)
    short, _ = jax.jit(lambda p: _step(limited, p, log_precision, (x, y), means))(progress)
    moved = reference.jacobian @ np.asarray(ravel_pytree(short)[0])
    divergence = 0.5 * np.mean(np.einsum("ia,iab,ib->i", moved, reference.fisher, moved))
    assert abs(divergence / (0.36 * 1e-4) - 1) < 1e-8


def test_the_number_of_parameters_is_between_what_parts_of_the_rows_say(monkeypatch):
    predict_one, params, x, y = mlp_problem(rows=60)
    groups = resolve(Prior(), params, [True] * 4)
    names, network = groups.names, Network(params, predict_one, groups.leaves)
    reference = dense(predict_one, params, x, y, dict.fromkeys(names, 1.0))
    whitened = np.einsum("iab,ibp->iap", np.sqrt(reference.fisher), reference.jacobian)
    sizes = [np.size(leaf) for leaf in jax.tree.leaves(params)]

    def effective(rows, copies):
        information = copies * np.einsum("iap,iaq->pq", whitened[rows], whitened[rows])
        own = np.diag(np.linalg.solve(information + np.eye(sum(sizes)), information))
        return np.array([part.sum() for part in np.split(own, np.cumsum(sizes)[:-1])])

    parts = np.random.default_rng(0).permutation(60).reshape(6, 10)
    smallest = np.mean([effective(rows, 6).sum() for rows in parts])
    largest = np.mean([6 * effective(rows, 1).sum() for rows in parts])
    assert smallest < effective(parts.reshape(-1), 1).sum() < largest

    monkeypatch.setattr(_tuning, "_TRAINING_SIZE", 20)  # two outputs of ten rows
    squares = np.array([float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(params)])
    found = update_by_part((network, x, y), groups, np.zeros(4), squares, 100.0)
    between = np.sqrt(6 * effective(parts[0], 1) * effective(parts[0], 6))
    assert worst(np.exp(found), between / squares) < 1e-8
    # with all rows it is exact, and no step is longer than asked
    monkeypatch.setattr(_tuning, "_TRAINING_SIZE", 120)
    found = update_by_part((network, x, y), groups, np.zeros(4), squares, 100.0)
    assert worst(np.exp(found), effective(parts.reshape(-1), 1) / squares) < 1e-8
    short = update_by_part((network, x, y), groups, np.zeros(4), squares, 0.1)
    assert np.max(np.abs(short)) == pytest.approx(0.1)


@pytest.fixture(scope="module")
def trained():
    x = draw(0, 120, 3)
    y = np.sin(2 * x[:, 0]) + 0.1 * draw(1, 120)
    _, params, _, _ = mlp_problem(width=12)
    return x, y, train_by_evidence(mlp, params, x, y, steps=200)


def test_it_learns_the_function_and_the_precisions(trained):
    x, y, found = trained
    dist = jax.vmap(mlp, (None, 0))(found.params, x)
    assert (
        np.sqrt(np.mean((dist.mean - np.sin(2 * x[:, 0])) ** 2)) < 0.2
    )  # of 0.7, with a noise of 0.1
    assert found.nll.shape == (200,)
    assert found.precisions.shape == (20, 4)
    first, *_, last = np.split(np.log(found.precisions), [9, 19])
    assert np.all(np.ptp(first, 0) == 0)  # the first half learns without a prior
    assert np.all(last > np.log(120 * 1e-5))
    assert list(found.prior.precision) == ["bias", "first", "head", "second"]
    # the learned precisions are near the fixed point at the last parameters
    posterior = fit_posterior(mlp, found.params, x, y, prior=found.prior, tune=False)
    assert np.max(np.abs(posterior.evidence.gradient)) < 5


def test_fixed_leaves_stay():
    x, y = draw(0, 20, 3), draw(1, 20)
    _, params, _, _ = mlp_problem(width=12)
    prior = Prior({"last": 1.0}, {"last": ["head"]}, mean=params)
    found = train_by_evidence(mlp, params, x, y, steps=20, prior=prior)
    np.testing.assert_array_equal(found.params["first"], params["first"])
    assert np.any(found.params["head"] != params["head"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "`steps` must be a positive integer"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
        ({"damping": 0}, "`damping` must be positive"),
        ({"max_kl": -1}, "`max_kl` must be positive"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        train_by_evidence(
            lambda p, x: Gaussian(p * x, p), np.ones(()), draw(0, 3), draw(1, 3), **options
        )
