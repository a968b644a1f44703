"""A fit that is interrupted goes on to the same bits."""

import jax
import numpy as np
import pytest

from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.estimator import Fisher8Regressor
from tests.attacks.estimators import ROWS
from tests.estimator.methods import ADAM, RADIUS

pytest.importorskip("orbax.checkpoint")

SETTINGS = {
    "methods": (RADIUS, ADAM), "n_members": 2, "hidden_layer_sizes": (4,), "max_steps": 60,
    "random_state": 0, "show_progress": False,
}  # fmt: skip
TARGETS = ROWS[:, 0] + np.sin(9 * ROWS[:, 1])


@pytest.fixture(autouse=True, scope="module")
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def whole():
    return Fisher8Regressor(**SETTINGS).fit(ROWS, TARGETS)


def interrupt_after(monkeypatch, saves):
    """Ctrl-C when so many states have been saved."""
    save, done = TrainingCheckpoints.save, []

    def interrupted(self, step, state):
        save(self, step, state)
        if step % 5 == 0:
            done.append(step)
        if len(done) == saves:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingCheckpoints, "save", interrupted)


def test_an_interrupted_fit_goes_on_to_the_same_bits(whole, tmp_path, monkeypatch):
    model = Fisher8Regressor(**SETTINGS, checkpoint_dir=tmp_path / "states")
    for saves in (3, 8):  # the second time in the second candidate
        with monkeypatch.context() as patch:
            interrupt_after(patch, saves)
            with pytest.raises(KeyboardInterrupt):
                model.fit(ROWS, TARGETS)
    model.fit(ROWS, TARGETS)
    for name in ("params_", "held_out_nll_", "candidates_", "n_iter_"):
        jax.tree.map(np.testing.assert_array_equal, getattr(model, name), getattr(whole, name))
    assert model.methods_ == whole.methods_
    folders = {path.name for path in (tmp_path / "states").iterdir()}
    assert folders == {"gaussian-0", "gaussian-1"}
    model.save(tmp_path / "model.f8")
    assert Fisher8Regressor.load(tmp_path / "model.f8").checkpoint_dir is None


def test_a_folder_of_another_fit_is_refused(tmp_path):
    def fit(targets=TARGETS, **settings):
        model = Fisher8Regressor(**(SETTINGS | {"methods": RADIUS} | settings))
        return model.set_params(checkpoint_dir=str(tmp_path)).fit(ROWS, targets)

    fit()
    with pytest.raises(
        ValueError, match=r"belongs to another run, with `data` '[0-9a-f]{16}' there"
    ):
        fit(TARGETS + 1e-3)
    with pytest.raises(ValueError, match="with `steps` 60 there and 50 here"):
        fit(max_steps=50)
    with pytest.raises(ValueError, match="with `seed`"):
        fit(random_state=1)


def test_what_cannot_go_on_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`random_state` must be an integer if `checkpoint_dir`"):
        Fisher8Regressor(checkpoint_dir=tmp_path).fit(ROWS, TARGETS)
    with pytest.raises(ValueError, match="`checkpoint_dir` must be a path or None, got 3"):
        Fisher8Regressor(checkpoint_dir=3).fit(ROWS, TARGETS)
