"""The KL radius as a link of Optax chains, in Flax, and the errors that users can meet."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.optimizers import scale_by_kl_radius
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network

LINKS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(1e-3),
    "clipping": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
}


@pytest.fixture(scope="module")
def problem():
    jax.config.update("jax_enable_x64", True)
    params = make_params()
    inputs, targets = make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    return params, gradients, functools.partial(network, inputs=inputs)


@pytest.mark.parametrize("name", LINKS)
def test_any_chain_keeps_its_direction_and_gets_its_length(problem, name):
    params, gradients, predict = problem
    plain, _ = LINKS[name].update(gradients, LINKS[name].init(params), params)
    optimizer = optax.chain(LINKS[name], scale_by_kl_radius(0.2))
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params, predict=predict)
    factor = optax.tree_utils.tree_get(state, "scale")
    for leaf, plain_leaf in zip(jax.tree.leaves(updates), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(leaf, float(factor) * plain_leaf, rtol=1e-6)
    _, change = jax.jvp(predict, (params,), (updates,))
    assert float(jnp.mean(0.5 * predict(params).fisher_norm_sq(change))) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("schedule", "step_factor"),
    [
        (optax.polynomial_schedule(0.2, 0.0, power=2, transition_steps=4), lambda t: 1 - t / 4),
        (
            optax.cosine_decay_schedule(0.2, 4, exponent=2),
            lambda t: (1 + np.cos(np.pi * t / 4)) / 2,
        ),
    ],
)
def test_a_squared_schedule_of_the_radius_decays_the_step(problem, schedule, step_factor):
    params, gradients, predict = problem
    radius = scale_by_kl_radius(schedule)
    state = radius.init(params)
    scales = []
    for _ in range(5):
        _, state = radius.update(gradients, state, params, predict=predict)
        scales.append(float(state.scale))
    expected = [step_factor(t) for t in range(5)]
    np.testing.assert_allclose(np.array(scales) / scales[0], expected, atol=1e-6)
    assert int(state.skipped) == 0


@pytest.mark.parametrize("exact", [False, True])
def test_inject_hyperparams(problem, exact):
    params, gradients, predict = problem
    expected, _ = (radius := scale_by_kl_radius(0.2, exact=exact)).update(
        gradients, radius.init(params), params, predict=predict
    )
    injected = optax.inject_hyperparams(scale_by_kl_radius)(max_kl=0.05, exact=exact)
    state = injected.init(params)
    state.hyperparams["max_kl"] = jnp.asarray(0.2)
    update = jax.jit(functools.partial(injected.update, predict=predict))
    got, state = update(gradients, state, params)
    np.testing.assert_allclose(got["w1"], expected["w1"], rtol=1e-6)
    scheduled = optax.inject_hyperparams(scale_by_kl_radius)(
        max_kl=optax.linear_schedule(0.2, 0.0, 10), exact=exact
    )
    got, _ = scheduled.update(gradients, scheduled.init(params), params, predict=predict)
    np.testing.assert_allclose(got["w1"], expected["w1"], rtol=1e-6)


def test_apply_if_finite_keeps_momentum_clean(problem):
    params, gradients, predict = problem
    chain = optax.chain(optax.sgd(1.0, momentum=0.9), scale_by_kl_radius(0.2))
    optimizer = optax.apply_if_finite(chain, max_consecutive_errors=5)
    state = optimizer.init(params)
    bad = gradients | {"b1": gradients["b1"] * jnp.nan}
    updates, state = optimizer.update(bad, state, params, predict=predict)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(updates))
    updates, state = optimizer.update(gradients, state, params, predict=predict)
    expected, _ = chain.update(gradients, chain.init(params), params, predict=predict)
    np.testing.assert_allclose(updates["w1"], expected["w1"])


def test_frozen_parameters_stay_frozen(problem):
    params, gradients, predict = problem
    labels = {name: "frozen" if name == "w1" else "trained" for name in params}
    freeze = optax.partition({"frozen": optax.set_to_zero(), "trained": optax.sgd(1.0)}, labels)
    optimizer = optax.chain(freeze, scale_by_kl_radius(0.2))
    updates, _ = optimizer.update(gradients, optimizer.init(params), params, predict=predict)
    assert np.all(updates["w1"] == 0)
    _, change = jax.jvp(predict, (params,), (updates,))
    assert float(jnp.mean(0.5 * predict(params).fisher_norm_sq(change))) == pytest.approx(0.2)


def test_nnx_optimizer_forwards_predict():
    inputs, targets = make_batch(dtype=jnp.float32)
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(
        model, optax.chain(optax.sgd(1.0), scale_by_kl_radius(0.2)), wrt=nnx.Param
    )

    def distribution(model):
        outputs = model(inputs)
        return Gaussian(outputs[:, 0], outputs[:, 1])

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            return fisher8(distribution(model)).nll(targets).mean()

        gradients = nnx.grad(loss)(model)
        graph, _, rest = nnx.split(model, nnx.Param, ...)

        def predict(params):
            return distribution(nnx.merge(graph, params, rest))

        before = distribution(model)
        optimizer.update(model, gradients, predict=predict)
        return before.kl(distribution(model)).mean()

    with jax.numpy_rank_promotion("allow"):  # inside nnx.Linear
        moved = step(model, optimizer)
    assert float(moved) == pytest.approx(0.2, rel=0.5)
    measured = optax.tree_utils.tree_get(optimizer.opt_state, "quadratic_kl")
    assert float(measured[...]) == pytest.approx(0.2, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "The KL radius needs `predict`"),
        ({"predict": 3}, TypeError, "`predict` must be a function .* got int"),
        (
            {"predict": lambda p: p["w1"]},
            TypeError,
            "of `predict` must be a distribution",
        ),
    ],
)
def test_errors_of_update(problem, arguments, error, message):
    params, gradients, _ = problem
    optimizer = optax.chain(optax.sgd(1.0), scale_by_kl_radius(0.2))
    with pytest.raises(error, match=message):
        optimizer.update(gradients, optimizer.init(params), params, **arguments)


def test_error_without_params(problem):
    params, gradients, predict = problem
    radius = scale_by_kl_radius(0.2)
    with pytest.raises(ValueError, match="The KL radius needs `params`"):
        radius.update(gradients, radius.init(params), predict=predict)


def test_error_of_exact_without_predict(problem):
    params, gradients, _ = problem
    radius = scale_by_kl_radius(0.2, exact=True)
    with pytest.raises(ValueError, match="The KL radius needs `predict`"):
        radius.update(gradients, radius.init(params), params, step_kl=jnp.ones(()))


def test_error_if_predict_contains_fisher8(problem):
    params, gradients, predict = problem
    radius = scale_by_kl_radius(0.2)
    with pytest.raises(TypeError, match="Return the distribution before `fisher8`"):
        radius.update(gradients, radius.init(params), params, predict=lambda p: fisher8(predict(p)))


def test_error_inside_masked(problem):
    params, gradients, predict = problem
    optimizer = optax.masked(scale_by_kl_radius(0.2), {name: name != "w1" for name in params})
    with pytest.raises(ValueError, match="Put it last in the outermost"):
        optimizer.update(gradients, optimizer.init(params), params, predict=predict)


def test_error_if_trees_differ(problem):
    params, gradients, predict = problem
    radius = scale_by_kl_radius(0.2)
    with pytest.raises(ValueError, match="trees of the same structure"):
        radius.update({"w1": gradients["w1"]}, radius.init(params), params, predict=predict)


def test_error_of_mask_shape(problem):
    params, gradients, predict = problem
    radius = scale_by_kl_radius(0.2)
    with pytest.raises(ValueError, match="`where` must have the shape of the predictions"):
        radius.update(
            gradients, radius.init(params), params, predict=predict, where=jnp.ones(7, bool)
        )


@pytest.mark.parametrize("max_kl", [0, -0.1])
def test_error_of_a_radius_that_is_not_positive(max_kl):
    with pytest.raises(ValueError, match="`max_kl` must be positive"):
        scale_by_kl_radius(max_kl)


def test_error_of_an_unknown_mode():
    with pytest.raises(ValueError, match="`mode` must be one of target, cap"):
        scale_by_kl_radius(0.1, mode="trust")
