"""What the estimator does not know: its posterior by two other routes, familiarity, information."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._calibration import know
from fisher8_jax.estimator._epistemic import Knowledge, posterior_variance
from fisher8_jax.estimator._network import DenseNetwork, link_of
from fisher8_jax.estimator._training import Rows
from fisher8_jax.estimator._widths import find_widths
from fisher8_jax.families import Poisson
from fisher8_jax.posterior import Prior, fit_posterior, leave_one_out
from tests.estimator.methods import RADIUS

SETTINGS = {
    "methods": RADIUS,
    "n_members": 2,
    "hidden_layer_sizes": (8,),
    "max_steps": 300,
    "random_state": 0,
}
RNG = np.random.default_rng(0)
NETWORK = DenseNetwork((5, 4), link_of(Gaussian), ())


def make_rows(rows=60, features=2):
    inputs = RNG.normal(size=(rows, features)).astype(np.float32)
    return Rows(inputs, inputs[:, 0].astype(float), np.ones(rows, bool), np.ones(rows))


def make_params(network, features=2):
    return network.init(np.random.default_rng(1), features, {"log_variance": np.log(0.1)})


def make_table(rows=200):
    inputs = np.random.default_rng(2).uniform(-1, 1, (rows, 2))
    noise = 0.1 * np.exp(inputs[:, 1]) * np.random.default_rng(3).normal(size=rows)
    return inputs, np.sin(3 * inputs[:, 0]) + noise


def test_the_posterior_is_that_of_the_linearised_network():
    """Fewer rows than anchors, so nothing is approximated but for the jitter."""
    rows, params = make_rows(), make_params(NETWORK)
    knowledge, known = know(NETWORK, params, rows)
    new = 2 * RNG.normal(size=(7, 2)).astype(np.float32)
    found = posterior_variance(NETWORK, params, knowledge, new)[:, 0]

    def predict_one(params, x):  # the variance is an output that the prior leaves as it is
        dist = NETWORK(params["uncertain"], x[None])
        fixed = NETWORK(params["fixed"], x[None])
        return Gaussian(dist.mean[0], fixed.log_variance[0])

    posterior = fit_posterior(
        predict_one,
        {"uncertain": params, "fixed": params},
        rows.inputs,
        rows.targets,
        prior=Prior(float(1 / knowledge.scale[0]), groups={"all": ["uncertain"]}),
        tune=False,
    )
    expected = posterior.output_covariance(new)[:, 0, 0]
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=2e-4)
    left_out = leave_one_out(posterior).covariance[:, 0, 0]
    np.testing.assert_allclose(known[0], np.sort(left_out), rtol=0.05, atol=5e-4)
    assert knowledge.level[0] == pytest.approx(3 * np.quantile(known, 0.9))


def test_more_rows_than_anchors_give_a_variance_between_prior_and_posterior():
    rows, params = make_rows(600), make_params(NETWORK)
    knowledge, _ = know(NETWORK, params, rows)
    new = 2 * RNG.normal(size=(20, 2)).astype(np.float32)
    found = np.asarray(posterior_variance(NETWORK, params, knowledge, new)[:, 0])

    def jacobian(inputs):
        def mean(params, x):
            return NETWORK(params, x[None]).mean[0]

        tree = jax.vmap(jax.grad(mean), (None, 0))(params, inputs)
        return np.concatenate([np.reshape(x, (len(inputs), -1)) for x in jax.tree.leaves(tree)], 1)

    train, test = (np.float64(jacobian(x)) for x in (rows.inputs, new))
    scale = 1 / np.mean(np.sum(train**2, 1))
    weights = np.exp(-NETWORK(params, rows.inputs).log_variance)
    precision = np.eye(train.shape[1]) / scale + (train * weights[:, None]).T @ train
    exact = np.einsum("ip,pq,iq->i", test, np.linalg.inv(precision), test)
    assert np.all(found > 0.99 * exact - 1e-5)
    assert np.all(found < scale * np.sum(test**2, 1))
    np.testing.assert_allclose(found, exact, rtol=0.1, atol=1e-3)


def test_tangents_are_the_jacobian_and_the_fisher_information():
    network = DenseNetwork((5,), link_of(Poisson), (2,))
    params = network.init(np.random.default_rng(0), 3, {})
    inputs = RNG.normal(size=(4, 3)).astype(np.float32)
    entering, deltas, information = network.tangents(params, inputs)

    def log_rates(params, x):
        return network(params, x[None]).log_rate[0]

    exact = jax.vmap(jax.jacobian(log_rates), (None, 0))(params, inputs)
    for layer, a, d in zip(exact, entering, deltas, strict=True):
        kernel = np.einsum("na,ntd->ntad", a, d)
        np.testing.assert_allclose(kernel, layer["kernel"], atol=1e-6)
        np.testing.assert_allclose(d, layer["bias"], atol=1e-6)
    rates = np.exp(network(params, inputs).log_rate)
    np.testing.assert_allclose(information, rates, rtol=1e-5)  # the information about ln(rate)


@pytest.mark.parametrize("family", ["gaussian", "student_t", "poisson", "gamma"])
def test_parts_add_up_and_grow_outside(family):
    inputs, targets = make_table()
    targets = np.floor(3 + 2 * targets) if family == "poisson" else targets
    targets = np.exp(targets) if family == "gamma" else targets
    model = Fisher8Regressor(**SETTINGS, family=family).fit(inputs, targets)
    far = inputs + np.array([6.0, 0.0])
    for rows in (inputs, far):
        aleatoric, epistemic = model.predict_uncertainty(rows)
        std = model.predict(rows, return_std=True)[1]
        np.testing.assert_allclose(aleatoric + epistemic, std**2, rtol=1e-4)
    assert np.all(model.predict_uncertainty(far)[1] > model.predict_uncertainty(inputs)[1].mean())
    assert np.all(model.predict_familiarity(far) <= 1 / 100)
    alone = Fisher8Regressor(**SETTINGS | {"n_members": 1}, family=family).fit(inputs, targets)
    wide = alone.predict(far, return_std=True)[1].mean()
    assert wide > 1.5 * alone.predict(inputs, return_std=True)[1].mean()


def test_familiarity_of_rows_like_the_training_rows_is_uniform():
    inputs, targets = make_table(400)
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    new = np.random.default_rng(9).uniform(-1, 1, (2000, 2))
    found = model.predict_familiarity(new)
    assert found.min() > 0
    assert found.max() <= 1
    # 400 training rows: a standard error of 0.025 at 0.5.
    for share in (0.1, 0.25, 0.5):
        assert np.mean(found <= share) == pytest.approx(share, abs=0.08)


def test_information_is_large_where_little_is_known_and_noise_is_small():
    inputs, targets = make_table(400)
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    quiet, loud, far = model.predict_information([[0.0, -0.8], [0.0, 0.8], [3.0, 0.0]])
    assert far > quiet > loud > 0
    two = Fisher8Regressor(**SETTINGS).fit(inputs, np.stack([targets, targets], 1))
    assert two.predict_information(inputs).shape == (400,)
    assert two.predict_familiarity(inputs).shape == (400,)


def test_a_member_alone_knows_what_the_first_of_several_knows():
    inputs, targets = make_table()
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    again, known = know(model._network(), model.reference_params_, model.memory_.rows)
    assert isinstance(again, Knowledge)
    np.testing.assert_allclose(again.anchors, model.knowledge_.anchors)
    assert jnp.isfinite(known).all()


@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
def test_a_smooth_network_beyond_all_members_widens_what_is_unfamiliar(shift):
    """Its distance to the nearest member counts with the part of the variance that is too much."""
    inputs, targets = make_table()
    model = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    rows = np.geomspace(0.1, 10, len(inputs), dtype=np.float32)[:, None] * model.memory_.rows.inputs
    network, ensemble, inside = model._network(), model._ensemble(), np.zeros(len(rows))
    params = [*ensemble.reference]
    bias = params[-1]["bias"] + np.array([shift, 0.0], np.float32)
    moved = ensemble._replace(reference=[*params[:-1], {**params[-1], "bias": bias}])
    found = find_widths(network, moved, rows, inside).added
    variance = posterior_variance(network, ensemble.reference, ensemble.knowledge, rows)[:, 0]
    means = np.stack([
        network(jax.tree.map(lambda leaf, m=m: leaf[m], ensemble.params), rows).mean
        for m in range(len(ensemble.params[-1]["bias"]))
    ])  # fmt: skip
    own = network(moved.reference, rows).mean
    distance = np.maximum(own - means.max(0), 0) + np.maximum(means.min(0) - own, 0)
    excess = np.maximum(variance - ensemble.knowledge.level, 0)
    assert 0 < np.mean(excess > 0) < 1
    assert shift == 0 or distance.max() > 3
    np.testing.assert_allclose(found, excess + excess / variance * distance**2, rtol=1e-4)
