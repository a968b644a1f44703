"""The shared loop against a plain one, step by step, and against itself in other groupings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.machinery import loop
from benchmarks.machinery.baselines import BASELINES
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.loop import Datasets, Schedule, start, train, train_on_batches
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Batch, Run
from benchmarks.machinery.training import Setup, objective_of

ROWS, FEATURES, BATCH, STEPS = 21, 3, 5, 9
RATES = (0.01, 0.05)
FOLDS = 2


def make_datasets(padded_features: int = FEATURES, padded_rows: int = ROWS) -> Datasets:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(FOLDS, ROWS, FEATURES)).astype(np.float32)
    targets = (inputs[..., 0] + rng.normal(size=(FOLDS, ROWS))).astype(np.float32)
    fill = ((0, 0), (0, padded_rows - ROWS))
    inputs = np.pad(inputs, (*fill, (0, padded_features - FEATURES)))
    return Datasets(jnp.asarray(inputs), jnp.asarray(np.pad(targets, fill)))


def make_schedule(steps: int = STEPS) -> Schedule:
    drawn = [
        shuffled_rows(generator("test", fold), ROWS, batch=BATCH, steps=steps)
        for fold in range(FOLDS)
    ]
    rows = np.stack([order for order, _ in drawn], axis=1)
    factor = np.linspace(1, 0.5, steps).astype(np.float32)
    return Schedule(rows, drawn[0][1], factor)


def make_runs(places: list[tuple[int, float]]) -> Run:
    source, rate = (np.array(values) for values in zip(*places, strict=True))
    keys = jax.vmap(jax.random.key)(source.astype(np.uint32))
    return Run(jnp.asarray(rate, jnp.float32), keys, jnp.asarray(source, jnp.int32))


def make_setup(name: str, optimizer=optax.sgd, **fields) -> Setup:
    method = BASELINES[name].override(**fields)
    return Setup(Mlp(hidden=(4,), outputs=HEADS[method.head].outputs), method, optimizer)


def first_params(setup: Setup, fold: int, padded: int | None = None):
    return setup.network.init(generator("init", fold), FEATURES, padded)


def train_all(setup, places, datasets=None, padded=None):
    datasets = make_datasets() if datasets is None else datasets
    runs = make_runs(places)
    params = stack_members([first_params(setup, fold, padded) for fold, _ in places])
    state = start(setup.task, params, None, runs, datasets)
    state, losses = train(setup.task, state, datasets, runs, make_schedule())
    return state, losses


def plain_loop(setup: Setup, fold: int, rate: float, penalty=lambda params: 0.0):
    """The same training as a beginner would write it."""
    datasets, schedule, objective = make_datasets(), make_schedule(), objective_of(setup.method)
    inputs, targets = datasets.inputs[fold], datasets.targets[fold]
    params = jax.tree.map(jnp.asarray, first_params(setup, fold))

    def predict(params, x):
        (mean, *others), _ = setup.network.forward(
            params, None, x, key=None, stop_gradient=setup.method.stops_trunk, train=True
        )
        return HEADS[setup.method.head].apply(mean, *others)

    loss_state = objective.init(predict(params, inputs))
    optimizer = setup.optimizer(jnp.float32(rate))
    optimizer_state = optimizer.init(params)
    refresh = jax.jit(
        lambda loss_state, params: objective.refresh(loss_state, predict(params, inputs))
    )

    @jax.jit
    def descend(params, optimizer_state, loss_state, rows, key, rate):
        def loss(params):
            dist = predict(params, inputs[rows])
            values = objective.values(loss_state, dist, targets[rows], indices=rows, key=key)
            return values.mean() + penalty(params)

        optimizer = setup.optimizer(rate)
        updates, optimizer_state = optimizer.update(jax.grad(loss)(params), optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    for step in range(STEPS):
        if schedule.new_epoch[step]:
            loss_state = refresh(loss_state, params)
        rows = schedule.rows[step, fold]
        key = jax.random.fold_in(jax.random.key(np.uint32(fold)), step)
        now = jnp.float32(rate) * schedule.factor[step]
        params, optimizer_state = descend(params, optimizer_state, loss_state, rows, key, now)
    return params


def assert_close(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


PLACES = [(fold, rate) for fold in range(FOLDS) for rate in RATES]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("nll", optax.sgd),
        ("fisher8", optax.adam),
        ("faithful", functools.partial(optax.sgd, momentum=0.9)),
        ("trustable", optax.sgd),
    ],
)
def test_equals_a_plain_loop_step_by_step(name, optimizer):
    setup = make_setup(name, optimizer)
    state, losses = train_all(setup, PLACES)
    assert losses.shape == (STEPS, len(PLACES))
    assert np.isfinite(losses).all()
    for run, (fold, rate) in enumerate(PLACES[:3]):
        mine = jax.tree.map(lambda leaf, run=run: leaf[run], state.params)
        # float32 sums in another order: some 1e-6 of the values after nine steps
        assert_close(mine, plain_loop(setup, fold, rate), rtol=1e-4, atol=1e-6)


def test_the_penalty_of_a_method_is_part_of_its_loss():
    """Wong-Toi with rho and gamma of 1/2: a quarter of the squares of all weights."""
    halves = {"rho": 0.5, "gamma": 0.5}
    setup = make_setup("nll", loss="wong_toi", hyperparameters=halves)
    state, _ = train_all(setup, PLACES[:1])
    mine = jax.tree.map(lambda leaf: leaf[0], state.params)

    def penalty(params):
        weights = [*(layer["w"] for layer in params["trunk"]), params["head"]["w"]]
        return 0.25 * sum(jnp.sum(leaf**2) for leaf in weights)

    assert_close(mine, plain_loop(setup, *PLACES[0], penalty), rtol=1e-4, atol=1e-6)
    without = plain_loop(setup, *PLACES[0])
    assert not np.allclose(mine["trunk"][0]["w"], without["trunk"][0]["w"], rtol=1e-3)


def test_a_stop_gradient_trunk_makes_faithful_learn_the_mean_of_unit_variance():
    faithful, _ = train_all(make_setup("faithful"), PLACES)
    alone, _ = train_all(make_setup("unit_variance"), PLACES)
    assert_close(faithful.params["trunk"], alone.params["trunk"], rtol=1e-5, atol=1e-7)
    joint, _ = train_all(make_setup("nll"), PLACES)
    trunk = joint.params["trunk"][0]["w"]
    assert not np.allclose(trunk, alone.params["trunk"][0]["w"], rtol=1e-3)


def test_runs_do_not_depend_on_their_neighbours():
    setup = make_setup("fisher8")
    together, _ = train_all(setup, PLACES)
    alone, _ = train_all(setup, PLACES[2:3])
    backwards, _ = train_all(setup, PLACES[::-1])
    pick = functools.partial(jax.tree.map, lambda leaf: leaf[2])
    assert_close(pick(together.params), jax.tree.map(lambda x: x[0], alone.params), rtol=1e-5)
    reverse = jax.tree.map(lambda leaf: leaf[::-1], backwards.params)
    assert_close(together.params, reverse, rtol=1e-5)


def test_padding_has_no_effect():
    setup = make_setup("fisher8")
    plain, _ = train_all(setup, PLACES)
    datasets = make_datasets(padded_features=7, padded_rows=40)
    padded, _ = train_all(setup, PLACES, datasets, padded=7)
    first = padded.params["trunk"][0]["w"]
    assert np.all(np.asarray(first[:, FEATURES:]) == 0)
    cut = {"w": first[:, :FEATURES], "b": padded.params["trunk"][0]["b"]}
    padded_params = {**padded.params, "trunk": [cut, *padded.params["trunk"][1:]]}
    assert_close(plain.params, padded_params, rtol=1e-5, atol=1e-7)


def test_chunks_equal_the_whole_to_the_bit_and_share_one_program():
    setup = make_setup("nll", optax.adam)
    whole = make_schedule()
    datasets, runs = make_datasets(), make_runs(PLACES)
    # As NumPy: arrays of JAX would be given up to the first training.
    members = stack_members([first_params(setup, fold) for fold, _ in PLACES])
    params = jax.tree.map(np.asarray, members)

    def run_chunks(length):
        state = start(setup.task, params, None, runs, datasets)
        for first in range(0, STEPS, length):
            chunk, steps = whole.chunk(first, length)
            state, losses = train(setup.task, state, datasets, runs, chunk, steps)
        return state, losses

    before = loop._train._cache_size()
    four, losses = run_chunks(4)
    assert loop._train._cache_size() == before + 1
    assert np.isnan(losses[1:]).all()
    assert np.isfinite(losses[0]).all()
    nine, _ = run_chunks(9)
    assert int(four.step) == int(nine.step) == STEPS
    for a, b in zip(jax.tree.leaves(four.params), jax.tree.leaves(nine.params), strict=True):
        assert np.array_equal(a, b)


def test_rows_of_data_sets_and_batches_at_hand_train_alike():
    setup = make_setup("fisher8")
    datasets, runs = make_datasets(), make_runs(PLACES)
    schedule = make_schedule()._replace(factor=np.ones(STEPS, np.float32))
    params = stack_members([first_params(setup, fold) for fold, _ in PLACES])
    state = start(setup.task, jax.tree.map(jnp.copy, params), None, runs, datasets)
    by_rows, _ = train(setup.task, state, datasets, runs, schedule)
    folds = np.array([fold for fold, _ in PLACES])
    rows = np.asarray(schedule.rows)[:, folds]
    batches = Batch(*(np.asarray(leaf)[folds[None, :, None], rows] for leaf in datasets))
    state = start(setup.task, params, None, runs)
    by_batches, _ = train_on_batches(setup.task, state, runs, batches)
    assert_close(by_rows.params, by_batches.params, rtol=1e-5, atol=1e-7)


def test_the_radius_bounds_the_step():
    setup = make_setup("fisher8_radius", max_kl=1e-4, radius_mode="target")
    state, _ = train_all(setup, PLACES)
    reached = optax.tree_utils.tree_get(state.optimizer, "quadratic_kl")
    # the last factor of the schedule is 0.5, squared for the radius
    np.testing.assert_allclose(reached, 0.25e-4, rtol=1e-3)


def test_rows_are_shuffled_epochs_without_their_partial_batch():
    rows, new_epoch = shuffled_rows(np.random.default_rng(0), 11, batch=3, steps=7)
    assert rows.shape == (7, 3)
    assert new_epoch.tolist() == [True, False, False, True, False, False, True]
    for epoch in (rows[:3], rows[3:6]):
        assert len(np.unique(epoch)) == 9
    assert not np.array_equal(rows[:3], rows[3:6])
    with pytest.raises(ValueError, match="`batch` must not exceed the 11 training rows, got 12"):
        shuffled_rows(np.random.default_rng(0), 11, batch=12, steps=1)


@pytest.mark.parametrize("name", BASELINES)
def test_every_method_trains_in_the_same_loop(name):
    if name in ("nll", "fisher8", "faithful", "trustable"):
        pytest.skip("compared with a plain loop above")
    state, losses = train_all(make_setup(name), PLACES)
    assert np.isfinite(losses).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
