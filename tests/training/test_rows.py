"""Folds and batches: which rows, in what order, whatever the number of rows."""

import jax
import numpy as np
import pytest

from fisher8_jax.training import Data, Plan
from fisher8_jax.training._data import BatchLoader, Folds, batch_rows, make_folds


def first_steps(batches, steps):
    """Without the padding to the length of a chunk."""
    return jax.tree.map(lambda leaf: leaf[:steps], batches)


@pytest.mark.parametrize("rows", [2, 7, 10, 103])
@pytest.mark.parametrize("held_out", [0.1, 0.2, 0.34, 0.7])
def test_folds_part_the_rows(rows, held_out):
    folds = make_folds(np.random.default_rng(0), rows, runs=5, held_out=held_out)
    size = min(max(1, round(held_out * rows)), rows - 1)
    assert folds.held_out.shape == (5, size)
    for train, held in zip(*folds, strict=True):
        assert sorted([*train, *held]) == list(range(rows))


def test_runs_hold_out_different_rows_as_long_as_there_are_some():
    folds = make_folds(np.random.default_rng(0), 103, runs=10, held_out=0.1)
    assert len(np.unique(folds.held_out)) == folds.held_out.size
    again = make_folds(np.random.default_rng(0), 103, runs=11, held_out=0.1)
    np.testing.assert_array_equal(again.held_out[10], again.held_out[0])


def test_rare_rows_are_spread_over_the_folds():
    strata = np.where(np.arange(1000) < 10, 1, 0)
    folds = make_folds(np.random.default_rng(0), 1000, runs=5, held_out=0.2, strata=strata)
    assert (np.sum(folds.held_out < 10, axis=1) == 2).all()


def test_nothing_held_out():
    folds = make_folds(np.random.default_rng(0), 1, runs=2, held_out=0.0)
    assert folds.held_out.shape == (2, 0)
    assert folds.train.tolist() == [[0], [0]]
    with pytest.raises(ValueError, match="`data` must have at least 2 rows if some are held out"):
        make_folds(np.random.default_rng(0), 1, runs=1, held_out=0.5)


def test_batches_do_not_depend_on_where_one_begins():
    rows = np.arange(100, 123)
    whole = batch_rows(3, rows, run=1, batch=5, first=0, steps=40)
    for first, steps in [(0, 7), (7, 1), (13, 27)]:
        part = batch_rows(3, rows, run=1, batch=5, first=first, steps=steps)
        np.testing.assert_array_equal(part, whole[first : first + steps])
    # Four whole batches an epoch, without repetition.
    for epoch in range(10):
        assert len(np.unique(whole[4 * epoch : 4 * epoch + 4])) == 20
    assert (whole != batch_rows(3, rows, run=2, batch=5, first=0, steps=40)).any()
    assert (whole != batch_rows(4, rows, run=1, batch=5, first=0, steps=40)).any()


def test_fewer_rows_than_a_batch_are_padded_and_masked():
    data = Data(np.arange(6.0).reshape(3, 2), np.arange(3.0), weights=np.ones(3))
    loader = BatchLoader(data, Folds(np.array([[0, 2]]), np.array([[1]])), batch_size=4, seed=0)
    batch = first_steps(loader.batches(0, 2), 2)
    assert batch.inputs.shape == (2, 1, 4, 2)
    np.testing.assert_array_equal(batch.where[..., 0, :], [[True, True, False, False]] * 2)
    assert sorted(batch.targets[0, 0, :2]) == [0.0, 2.0]
    (block,) = loader.validation_blocks()
    assert block.where.sum() == 1
    assert block.targets[block.where] == [1.0]


def test_masks_of_targets_are_kept():
    where = np.array([[True, False], [True, True], [False, True]])
    data = Data(np.zeros((3, 1)), np.arange(6.0).reshape(3, 2), where=where)
    folds = Folds(np.array([[0, 1, 2]]), np.zeros((1, 0), int))
    loader = BatchLoader(data, folds, batch_size=3, seed=0)
    batch = first_steps(loader.batches(0, 1), 1)
    assert sorted(batch.targets[batch.where]) == [0.0, 2.0, 3.0, 5.0]
    assert loader.validation_blocks() == []


def test_a_batch_far_larger_than_the_data_is_clipped():
    data = Data(np.zeros((60, 1)), np.zeros(60))
    folds = make_folds(np.random.default_rng(0), 60, runs=2, held_out=0.1)
    loader = BatchLoader(data, folds, batch_size=10**6, seed=0)
    assert loader.batch_size == 64
    batch = loader.batches(0, 1)
    assert batch.where[0].sum() == 2 * 54
    assert BatchLoader(data, folds, batch_size=32, seed=0).batch_size == 32


def test_validation_data_of_one_s_own_is_shared_by_all_runs():
    data = Data(np.zeros((5, 1)), np.arange(5.0))
    own = Data(np.zeros((2, 1)), np.array([8.0, 9.0]))
    folds = make_folds(np.random.default_rng(0), 5, runs=3, held_out=0)
    (block,) = BatchLoader(data, folds, batch_size=2, seed=0, validation=own).validation_blocks()
    assert block.targets[block.where].tolist() == [8.0, 9.0]


def test_validations_are_closer_at_first_and_end_with_the_last_step():
    steps = Plan(steps=4000, num_validations=40).validation_steps
    assert len(steps) == 40
    assert steps[-1] == 4000
    assert sum(step <= 400 for step in steps) >= 12  # a third of them in the first tenth
    assert (np.diff(np.diff(steps)) >= -1).all()
    assert Plan(steps=3, num_validations=40).validation_steps == (1, 2, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "`steps` must be a positive integer, got 0"),
        ({"steps": 2.5}, "`steps` must be a positive integer, got 2.5"),
        ({"batch_size": True}, "`batch_size` must be a positive integer"),
        (
            {"validation_fraction": 1.0},
            "`validation_fraction` must be at least 0 and below 1, got 1.0",
        ),
        ({"num_validations": 0}, "`num_validations` must be a positive integer"),
        ({"patience": 0}, "`patience` must be positive, got 0"),
        ({"average": 0.5}, "`average` must be at least 1, got 0.5"),
    ],
)
def test_bad_plans_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Plan(**({"steps": 10} | settings))


def test_kept_orders_change_nothing():
    train, kept = np.arange(50), {}
    calls = [(0, 3), (3, 10), (13, 1), (2, 4)]  # across epochs, and back
    for first, steps in calls:
        given = {"run": 1, "batch": 8, "first": first, "steps": steps}
        again = batch_rows(7, train, **given, kept=kept)
        np.testing.assert_array_equal(again, batch_rows(7, train, **given))
        assert len(kept) <= 3


def test_an_eager_plan_waits_for_three_quarters_of_what_was_done():
    plan = Plan(steps=1000, patience=0.3, eager=True)
    assert [plan.patience_after(step) for step in (10, 300, 900)] == [100, 225, 300]
    assert Plan(steps=1000, patience=0.3).patience_after(10) == 300
    assert Plan(steps=1000, patience=None, eager=True).patience_after(10) == float("inf")
