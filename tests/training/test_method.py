"""A method: its steps against loops by hand, as a pytree, printed, compared and saved."""

import copy
import dataclasses
import json
import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import Gaussian, fisher8_nll, fisher8_optimizer, losses, network_gradient
from fisher8_jax.curvature import ConjugateGradients, GradientState
from fisher8_jax.optimizers import network_optimizer
from fisher8_jax.training import (
    Data,
    KLRadius,
    LearningRate,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)
from fisher8_jax.training._method import with_runs

STEPS = 4


def network(params, inputs):
    outputs = jnp.tanh(inputs @ params["w"]) @ params["v"] + params["b"][None]
    return Gaussian(outputs[:, 0], outputs[:, 1])


def predict_one(params, example):
    return jax.tree.map(lambda leaf: leaf[0], network(params, example[None]))


def make_params():
    rng = np.random.default_rng(1)
    shapes = {"w": (3, 4), "v": (4, 2), "b": (2,)}
    return {name: jnp.asarray(0.3 * rng.normal(size=shape)) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(STEPS, 16, 3)))
    return [Data(x, x[:, 0] + 0.1 * x[:, 1]) for x in inputs]


def run(method, batches, num_steps=10):
    state = method.init(make_params(), num_steps)
    step = jax.jit(lambda method, state, batch: method.update(network, state, batch))
    for batch in batches:
        state, info = step(method, state, batch)
    assert int(state.step) == len(batches)
    return state.params, info


def by_hand(optimizer, batches, value_and_grad):
    """Steps of an Optax optimizer in a Python loop, with the arguments that it takes."""
    params = make_params()
    state = optimizer.init(params)
    for batch in batches:
        loss, gradient = value_and_grad(params, batch)
        updates, state = optimizer.update(
            gradient, state, params, predict=lambda p, x=batch.inputs: network(p, x)
        )
        params = optax.apply_updates(params, updates)
    return params, loss


def fisher8_gradient(params, batch):
    return jax.value_and_grad(
        lambda p: fisher8_nll(network(p, batch.inputs), batch.targets).mean()
    )(params)


def nll_gradient(params, batch):
    return jax.value_and_grad(lambda p: network(p, batch.inputs).nll(batch.targets).mean())(params)


def test_the_default_is_the_default_optimizer(batches):
    params, info = run(Method(), batches)
    expected, loss = by_hand(fisher8_optimizer(10), batches, fisher8_gradient)
    chex.assert_trees_all_close(params, expected, rtol=1e-9)
    np.testing.assert_allclose(info.loss, loss, rtol=1e-9)


def test_the_default_for_the_whole_network_is_network_optimizer(batches):
    params, info = run(Method(NetworkNaturalGradient()), batches)
    optimizer, expected = network_optimizer(10), make_params()
    state = optimizer.init(expected)
    for batch in batches:
        step = network_gradient(predict_one, expected, batch.inputs, batch.targets)
        updates, state = optimizer.update(step.gradient, state, expected, step_kl=step.step_kl)
        expected = optax.apply_updates(expected, updates)
    chex.assert_trees_all_close(params, expected, rtol=1e-6)
    np.testing.assert_allclose(info.loss, step.value, rtol=1e-6)
    expected_kl = 1.0 * (1 - 3 / 10) ** 2
    np.testing.assert_allclose(info.step_kl, expected_kl, rtol=1e-5)


def test_momentum_of_the_whole_network(batches):
    """What a step leaves reaches the next one through the state."""
    gradient = NetworkNaturalGradient(damping=1.0, momentum=0.5)
    params, _ = run(Method(gradient, KLRadius(0.1)), batches)
    optimizer, expected = network_optimizer(10, max_kl=0.1, average=None), make_params()
    state = optimizer.init(expected)
    kept = GradientState.zeros(expected, momentum=0.5)
    for batch in batches:
        step = network_gradient(
            predict_one, expected, batch.inputs, batch.targets, damping=1.0, state=kept
        )
        kept = step.state
        updates, state = optimizer.update(step.gradient, state, expected, step_kl=step.step_kl)
        expected = optax.apply_updates(expected, updates)
    chex.assert_trees_all_close(params, expected, rtol=1e-5)


def test_a_learning_rate_is_adam_with_a_linear_decay(batches):
    params, info = run(Method(LossGradient("nll"), LearningRate(0.1)), batches)
    rate = optax.linear_schedule(0.1, 0.0, 10)
    adam = optax.with_extra_args_support(optax.adam(rate, nesterov=True))
    expected, _ = by_hand(adam, batches, nll_gradient)
    chex.assert_trees_all_close(params, expected, rtol=1e-6)
    assert np.isnan(info.step_kl)


def test_any_loss_and_any_optax_transformation(batches):
    def half_squares(dist, targets, *, where=None, weights=None):
        return 0.5 * jnp.square(targets - dist.mean)

    def penalty(params):
        return 0.1 * jnp.sum(jnp.square(params["b"]))

    def by_grad(params, batch):
        def loss(p):
            dist = network(p, batch.inputs)
            return half_squares(dist, batch.targets).mean() + penalty(p)

        return jax.value_and_grad(loss)(params)

    sgd = optax.sgd(0.1)
    expected, _ = by_hand(optax.with_extra_args_support(sgd), batches, by_grad)
    for loss in (half_squares, "unit_variance", losses.unit_variance):
        params, _ = run(Method(LossGradient(loss, penalty=penalty), sgd), batches)
        chex.assert_trees_all_close(params, expected, rtol=1e-9)


def test_an_optax_radius_behind_the_whole_network_is_measured_anew(batches):
    """A link in between changes the direction, so `step_kl` of the gradient would be wrong."""
    gradient = NetworkNaturalGradient(damping=1.0)
    chain = optax.chain(optax.scale_by_sign(), network_optimizer(10, max_kl=1e-4, average=None))
    params, info = run(Method(gradient, chain), batches[:1])
    start = make_params()
    moved = network(params, batches[0].inputs)
    exact = network(start, batches[0].inputs).kl(moved).mean()
    np.testing.assert_allclose(info.step_kl, 1e-4, rtol=1e-5)
    np.testing.assert_allclose(exact, 1e-4, rtol=0.05)


def test_warm_up_and_decay(batches):
    for decay in (0, 1, 2):
        length = KLRadius(0.2, decay=decay, warm_up=0.5)
        _, info = run(Method(length=length), batches, num_steps=8)
        part = (3 / 8 + 0.01) / 0.5  # the fourth step, in the warm-up
        np.testing.assert_allclose(info.step_kl, 0.2 * part ** (2 * decay), rtol=1e-4)
    _, info = run(Method(length=KLRadius(0.2)), batches, num_steps=4)
    np.testing.assert_allclose(info.step_kl, 0.2 * 0.25**2, rtol=1e-4)


def test_numbers_are_leaves_and_structure_is_not():
    traced = []

    @jax.jit
    def total(method):
        traced.append(method)
        return method.length.max_kl + method.gradient.damping

    for number in (0.1, 0.2, 0.3):
        method = Method(NetworkNaturalGradient(damping=number), KLRadius(number))
        assert float(total(method)) == pytest.approx(2 * number)
    assert len(traced) == 1
    total(Method(NetworkNaturalGradient(0.1), KLRadius(0.1, mode="cap")))
    total(Method(NetworkNaturalGradient(0.1, solver=ConjugateGradients()), KLRadius(0.1)))
    assert len(traced) == 3


def test_stacked_methods_are_runs_side_by_side(batches):
    rates = np.array([0.01, 0.1])
    stacked = Method(LossGradient(), LearningRate(rates))
    two = with_runs(stacked, 2)
    params = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), make_params())
    states = jax.vmap(lambda method, params: method.init(params, 10))(two, params)
    for batch in batches:
        states, _ = jax.vmap(lambda m, s, b=batch: m.update(network, s, b))(two, states)
    for index, rate in enumerate(rates):
        alone, _ = run(Method(LossGradient(), LearningRate(float(rate))), batches)
        one = jax.tree.map(lambda leaf, index=index: leaf[index], states.params)
        chex.assert_trees_all_close(one, alone, rtol=1e-6)
    with pytest.raises(ValueError, match=r"one for each of 3 runs, got shape \(2,\) at .length"):
        with_runs(stacked, 3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("gradient", [LossGradient(), NetworkNaturalGradient()])
def test_narrow_parameters_stay_so(dtype, gradient, batches):
    """Traced numbers are wider than the parameters; the state must keep its dtypes in a loop."""
    method = with_runs(Method(gradient), 1)
    narrow = jax.tree.map(lambda leaf: leaf[None].astype(dtype), make_params())
    batch = jax.tree.map(lambda leaf: leaf.astype(dtype), batches[0])

    def step(_, state):
        return jax.vmap(lambda m, s: m.update(network, s, batch)[0])(method, state)

    first = jax.vmap(lambda method, params: method.init(params, 10))(method, narrow)
    last = jax.lax.fori_loop(0, 2, step, first)
    chex.assert_trees_all_equal_dtypes(last, first)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(last.params))
    chex.assert_tree_all_finite(last.params)


METHODS = [
    Method(),
    Method(NetworkNaturalGradient(damping=1.0, momentum=0.9)),
    Method(LossGradient("beta_nll", hyperparameters=(("beta", 0.5),)), LearningRate(0.1, decay=0)),
    Method(length=KLRadius(0.3, warm_up=0.2, mode="cap", exact=True), second_moment=None),
    Method(LossGradient(), LearningRate(np.array([0.1, 0.2])), momentum=None),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_it_prints_compares_and_goes_to_json_and_back(method):
    described = json.loads(json.dumps(method.to_dict()))
    for other in (Method.from_dict(described), copy.deepcopy(method)):
        assert other == method
        assert hash(other) == hash(method)
    assert pickle.loads(pickle.dumps(method)) == method
    again = dataclasses.replace(method)
    assert again == method
    assert repr(again) == repr(method)
    others = [other for other in METHODS if other is not method]
    assert all(other != method and repr(other) != repr(method) for other in others)


def test_the_printed_form_is_the_call_that_makes_it():
    method = Method(NetworkNaturalGradient(damping=1.0), KLRadius(0.3))
    assert repr(method) == (
        "Method(gradient=NetworkNaturalGradient(damping=1.0), length=KLRadius(max_kl=0.3))"
    )
    assert str(method) == "network natural gradient, damping 1, KL radius 0.3"
    adam = Method(LossGradient("nll"), LearningRate(0.003))
    assert eval(repr(adam)) == adam
    assert str(adam) == "gradient of nll, learning rate 0.003"
    assert str(Method(LossGradient(), LearningRate(0.1), momentum=None)).endswith(", no momentum")


def test_what_json_cannot_hold_is_named():
    with pytest.raises(TypeError, match="`length` is <Optax transformation>, which plain JSON"):
        Method(OutputNaturalGradient(), optax.sgd(0.1)).to_dict()
    with pytest.raises(TypeError, match="`loss` is nll_gradient, which plain JSON cannot hold"):
        Method(LossGradient(nll_gradient)).to_dict()
    for wrong in ({"kind": "Methods"}, {"kind": "Method", "speed": 3}, {}, {"kind": "KLRadius"}):
        with pytest.raises(ValueError, match="description"):
            Method.from_dict(wrong)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: LearningRate(-1.0), ValueError, "`rate` must be positive, got -1.0"),
        (lambda: LearningRate("fast"), TypeError, "`rate` must be a number"),
        (lambda: LearningRate(0.1, warm_up=1.0), ValueError, "`warm_up` must lie strictly between"),
        (lambda: KLRadius(0.0), ValueError, "`max_kl` must be positive"),
        (lambda: KLRadius(mode="both"), ValueError, "`mode` must be one of target, cap"),
        (lambda: NetworkNaturalGradient(damping=0), ValueError, "`damping` must be positive"),
        (lambda: NetworkNaturalGradient(momentum=1.0), ValueError, "`momentum` must be"),
        (lambda: LossGradient("nlll"), ValueError, "`loss` must be one of .*nll"),
        (lambda: LossGradient(3), TypeError, "`loss` must be a name in `losses.LOSSES` or"),
        (lambda: LossGradient("trustable"), ValueError, "`loss` must be one of unit_variance, nll"),
        (lambda: Method("fisher8"), TypeError, "`gradient` must be `LossGradient`"),
        (lambda: Method(length=0.1), TypeError, "`length` must be `LearningRate`, `KLRadius` or"),
        (lambda: Method(momentum=1.0), ValueError, "`momentum` must be at least 0 and below 1"),
        (lambda: Method(length=optax.sgd(1.0), momentum=0.9), ValueError, "have their own"),
        (lambda: Method(NetworkNaturalGradient(), momentum=0.9), ValueError, "have their own"),
        (
            lambda: Method(NetworkNaturalGradient(), KLRadius(max_change=0.3)),
            ValueError,
            "`max_change` of the `KLRadius` must be None",
        ),
    ],
)  # fmt: skip
def test_bad_descriptions_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_variables_have_no_part_in_the_whole_network_s_gradient(batches):
    method = Method(NetworkNaturalGradient())
    state = method.init(make_params(), 10, variables={"mean": jnp.zeros(3)})
    with pytest.raises(ValueError, match="without dropout or batch statistics"):
        method.update(lambda p, v, x, **_: (network(p, x), v), state, batches[0])
