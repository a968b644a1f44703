"""The loop: against one written by hand, lanes alone and together, looks and early stop."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import Gaussian, fisher8_nll, network_gradient, network_optimizer
from fisher8_jax.losses import make_objective
from fisher8_jax.training import (
    Batch,
    Data,
    Feed,
    Lane,
    Leaves,
    Plan,
    Task,
    make_folds,
    plain_network,
    start,
    train_lanes,
    train_on_batches,
    update,
)
from fisher8_jax.training._looks import held_out_nll, start_looks, take_look
from fisher8_jax.training._loop import _train_on_batches

LANES, ROWS, BATCH, STEPS = 2, 40, 8, 6
FISHER8 = make_objective("fisher8")


def predict(params, inputs):
    outputs = inputs @ params["w"] + params["b"][None]
    return Gaussian(outputs[:, 0], outputs[:, 1])


NETWORK = plain_network(predict)
TASK = Task(NETWORK, FISHER8, optax.sgd, average=3.0)


def make_data(rows=ROWS):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 3))
    return Data(inputs, inputs[:, 0] + 0.1 * rng.normal(size=rows))


def make_params(lanes=LANES):
    rng = np.random.default_rng(1)
    return {"w": 0.1 * rng.normal(size=(lanes, 3, 2)), "b": np.zeros((lanes, 2))}


def make_lanes(lanes=LANES):
    return Lane(jnp.linspace(0.1, 0.2, lanes), jax.random.split(jax.random.key(0), lanes))


def make_feed(data=None, lanes=LANES, held_out=0.2):
    data = make_data() if data is None else data
    folds = make_folds(np.random.default_rng(2), len(data.targets), lanes=lanes, held_out=held_out)
    return Feed(data, folds, batch_size=BATCH, seed=0)


@jax.jit
@jax.grad
def gradient_of(params, inputs, targets):
    return fisher8_nll(predict(params, inputs), targets).mean()


def by_hand(params, rate, batches):
    """Plain gradient steps in a Python loop; every set of parameters on the way."""
    path = []
    for inputs, targets in zip(batches.inputs, batches.targets, strict=True):
        gradient = gradient_of(params, inputs, targets)
        params = jax.tree.map(lambda p, g: p - rate * g, params, gradient)
        path.append(params)
    return path


@pytest.fixture(scope="module")
def trained():
    lanes, batches = make_lanes(), make_feed().batches(0, STEPS)
    state = start(TASK, make_params(), None, lanes)
    return train_on_batches(TASK, state, lanes, batches)


def test_it_equals_a_loop_by_hand(trained):
    state, readouts = trained
    batches, lanes = make_feed().batches(0, STEPS), make_lanes()
    assert int(state.step) == STEPS
    assert readouts["loss"].shape == (STEPS, LANES)
    for lane in range(LANES):
        own = jax.tree.map(lambda leaf, lane=lane: leaf[:, lane], batches)
        first = jax.tree.map(lambda leaf, lane=lane: jnp.asarray(leaf[lane]), make_params())
        path = by_hand(first, lanes.settings[lane], own)
        last = jax.tree.map(lambda leaf, lane=lane: leaf[lane], state.params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), last, path[-1])
        # The average has weights (2/3)^age.
        weights = (2 / 3) ** np.arange(STEPS)[::-1]
        mean = jax.tree.map(lambda *p, w=weights: np.average(p, axis=0, weights=w), *path)
        optimizer = jax.tree.map(lambda leaf, lane=lane: leaf[lane], state.optimizer)
        judged = TASK.judged(last, optimizer)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), judged, mean)


def test_chunks_share_one_program_and_change_nothing(trained):
    lanes, feed = make_lanes(), make_feed()
    state = start(TASK, make_params(), None, lanes)
    before = _train_on_batches._cache_size()
    for first, steps in [(0, 2), (2, 3), (5, 1)]:
        batches = jax.tree.map(
            lambda leaf: np.pad(leaf, [(0, STEPS - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)),
            feed.batches(first, steps),
        )
        state, readouts = train_on_batches(TASK, state, lanes, batches, steps)
        assert np.isnan(readouts["loss"]).sum() == (STEPS - steps) * LANES
    assert _train_on_batches._cache_size() == before
    jax.tree.map(np.testing.assert_array_equal, state, trained[0])


def test_other_numbers_of_rows_share_one_program(trained):
    lanes = make_lanes()
    before = _train_on_batches._cache_size()
    for rows in (23, 57):
        feed = make_feed(make_data(rows))
        train_on_batches(
            TASK, start(TASK, make_params(), None, lanes), lanes, feed.batches(0, STEPS)
        )
    assert _train_on_batches._cache_size() == before


def test_the_best_look_is_kept_and_a_stopped_lane_stays_so(trained):
    state, _ = trained
    looks = start_looks(state)

    def moved(amount):
        optimizer = jax.tree.map(lambda leaf: leaf + amount, state.optimizer)
        return state._replace(step=jnp.asarray(amount, jnp.int32), optimizer=optimizer)

    looks = take_look(TASK, moved(1), looks, np.array([3.0, np.nan]), patience_steps=2)
    looks = take_look(TASK, moved(2), looks, np.array([2.0, -np.inf]), patience_steps=2)
    assert looks.stopped.tolist() == [False, True]  # two steps without a number
    looks = take_look(TASK, moved(3), looks, np.array([2.5, 1.0]), patience_steps=2)
    assert looks.best.score.tolist() == [2.0, np.inf]
    assert looks.best_step.tolist() == [2, 0]
    average = optax.tree_utils.tree_get(moved(2).optimizer, "average")["w"]
    np.testing.assert_allclose(looks.best.params[0]["w"][0], average[0])


def test_held_out_rows_without_targets_never_score_zero(trained):
    data = make_data()
    where = np.arange(ROWS) % 2 == 0
    feed = make_feed(data._replace(where=where))
    blocks = feed.held_out_blocks()
    values = held_out_nll(TASK, trained[0], blocks)
    for lane in range(LANES):
        rows = feed.folds.held_out[lane]
        rows = rows[where[rows]]
        params = jax.tree.map(
            lambda leaf, lane=lane: leaf[lane], (trained[0].params, trained[0].optimizer)
        )
        nll = predict(TASK.judged(*params), data.inputs[rows]).nll(data.targets[rows])
        np.testing.assert_allclose(values[lane], nll.mean(), rtol=1e-6)
    empty = [block._replace(where=np.zeros_like(block.where)) for block in blocks]
    assert np.isnan(held_out_nll(TASK, trained[0], empty)).all()
    weightless = [block._replace(weights=np.zeros(block.where.shape)) for block in blocks]
    assert np.isnan(held_out_nll(TASK, trained[0], weightless)).all()
    light = [block._replace(weights=np.full(block.where.shape, 1e-3)) for block in blocks]
    np.testing.assert_allclose(held_out_nll(TASK, trained[0], light), values, rtol=1e-6)


def test_exactly_the_steps_of_the_plan_are_made():
    feed = make_feed()
    for steps in (1, 7, 70):
        plan = Plan(steps=steps, looks=3, patience=None)
        result = train_lanes(TASK, make_params(), None, make_lanes(), feed, plan)
        assert result.steps == steps
        assert result.readouts["loss"].shape == (steps, LANES)
        assert np.isfinite(result.readouts["loss"]).all()
        assert result.look_steps[-1] == steps
        np.testing.assert_allclose(result.held_out_nll, result.look_nll.min(axis=0), rtol=1e-6)


def test_training_stops_early_and_an_unjudged_lane_keeps_its_last_parameters():
    data = make_data()
    lanes = make_lanes()
    blind = make_feed(data._replace(where=np.zeros(ROWS, bool)))
    result = train_lanes(
        TASK, make_params(), None, lanes, blind, Plan(steps=40, looks=4, patience=0.2)
    )
    assert result.steps == 10  # the first look after 20 % of the steps without a better one
    assert np.isnan(result.held_out_nll).all()
    last = jax.vmap(TASK.judged)(result.state.params, result.state.optimizer)
    jax.tree.map(np.testing.assert_array_equal, result.params, last)


def test_a_step_of_the_whole_network_equals_the_library_s_functions():
    def one(params, example):
        return jax.tree.map(lambda leaf: leaf[0], predict(params, example[None]))

    def natural(params, batch, damping, state):
        return network_gradient(one, params, batch.inputs, batch.targets, damping=damping)

    optimizer = network_optimizer(10)
    task = Task(NETWORK, FISHER8, lambda damping: optimizer, natural=natural)
    data = make_data(8)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0], jnp.float32), make_params(1))
    batch = Batch(*(jnp.asarray(leaf, jnp.float32) for leaf in data[:2]))
    leaves = Leaves(params, None, optimizer.init(params))
    lane, nothing = Lane(0.1, jax.random.key(0)), jnp.zeros((), jnp.int32)
    leaves, readouts = update(task, leaves, lane, batch, nothing)
    step = natural(params, batch, 0.1, None)
    updates, _ = optimizer.update(
        step.gradient, optimizer.init(params), params, step_kl=step.step_kl
    )
    chex.assert_trees_all_equal(leaves.params, optax.apply_updates(params, updates))
    assert readouts["loss"] == step.value


def test_a_penalty_beside_a_natural_gradient_is_refused():
    with pytest.raises(ValueError, match="`penalty` is part of the loss"):
        Task(NETWORK, FISHER8, optax.sgd, natural=lambda *_: None, penalty=lambda params: 0.0)
