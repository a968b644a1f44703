"""States of unfinished trainings: what comes back, and what is not used."""

import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.checkpoints import load_checkpoint, open_checkpoints, save_checkpoint

SPEC = {"rates": (0.1, 0.2), "seed": 0}
TREE = {"state": [jnp.arange(3), np.float64(1 / 3)], "looks": np.zeros((2, 3))}


def test_a_small_state_comes_back_also_when_it_has_grown(tmp_path):
    save_checkpoint(tmp_path / "a", SPEC, TREE | {"looks": np.ones((5, 3))})
    back = load_checkpoint(tmp_path / "a", SPEC, TREE)
    np.testing.assert_array_equal(back["looks"], np.ones((5, 3)))
    assert back["state"][1] == 1 / 3


def test_other_states_and_damaged_ones_are_not_used(tmp_path):
    path = tmp_path / "a"
    assert load_checkpoint(path, SPEC, TREE) is None
    save_checkpoint(path, SPEC, TREE)
    assert load_checkpoint(path, SPEC | {"seed": 1}, TREE) is None
    assert load_checkpoint(path, SPEC, [TREE, TREE]) is None
    content = path.read_bytes()
    path.write_bytes(content[:-200] + b"x" * 200)
    assert load_checkpoint(path, SPEC, TREE) is None


def test_a_folder_of_another_spec_begins_anew(tmp_path):
    with open_checkpoints(tmp_path / "a", SPEC) as checkpoints:
        checkpoints.save(jnp.ones(2), 3)
    with open_checkpoints(tmp_path / "a", SPEC) as checkpoints:
        assert checkpoints.restore(jnp.zeros(2))[1] == 3
    with open_checkpoints(tmp_path / "a", SPEC | {"seed": 1}) as checkpoints:
        assert checkpoints.restore(jnp.zeros(2))[1] == 0
