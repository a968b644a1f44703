"""States of unfinished trainings: what comes back, and what is not used."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.machinery.checkpoints import resumed

SPEC = {"rates": (0.1, 0.2), "seed": 0}


def tree(value):
    return {"state": [value * jnp.arange(3), np.asarray(value / 3)], "looks": np.full(2, value)}


class StopError(Exception):
    """Ends a training before its time."""


@pytest.fixture
def folder(tmp_path):
    """A training that was stopped after its third save."""

    def train():
        with resumed(tmp_path / "a", SPEC, tree(0.0)) as (_, done, save):
            assert done == 0
            for number in range(1, 4):
                save(tree(float(number)), number)
            raise StopError

    with pytest.raises(StopError):
        train()
    return tmp_path / "a"


def test_the_newest_state_comes_back_and_a_finished_training_leaves_nothing(folder):
    with resumed(folder, SPEC, tree(0.0)) as (state, done, _):
        assert done == 3
        np.testing.assert_array_equal(state["looks"], 3.0)
        assert state["state"][1] == 1.0
        assert state["looks"].dtype == np.float64
    assert not folder.exists()


@pytest.mark.parametrize("spec", [SPEC | {"seed": 1}, SPEC | {"rates": (0.1,)}])
def test_another_spec_begins_anew(folder, spec):
    with resumed(folder, spec, tree(0.0)) as (state, done, _):
        assert done == 0
        np.testing.assert_array_equal(state["looks"], 0.0)


@pytest.mark.filterwarnings("ignore")
def test_states_that_are_all_damaged_begin_anew(folder):
    for path in folder.glob("*/**/*"):
        if path.is_file():
            path.write_bytes(b"x" * path.stat().st_size)
    with resumed(folder, SPEC, tree(0.0)) as (_, done, _):
        assert done == 0
