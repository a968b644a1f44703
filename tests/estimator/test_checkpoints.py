"""A fit that is interrupted goes on; a file that is no estimator is refused when it is loaded."""

import json

import jax
import numpy as np
import pytest

from fisher8_jax.artifacts import ArtifactError, TrainingCheckpoints, load_artifact, save_artifact
from fisher8_jax.estimator import Fisher8Regressor
from tests.artifacts import sample_estimator
from tests.attacks import BAD
from tests.attacks.estimators import ROWS, attack_estimators, fit_small

pytest.importorskip("orbax.checkpoint")

SETTINGS = {
    "methods": ("radius", "adam"), "n_members": 2, "hidden_layer_sizes": (4,), "max_steps": 60,
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

    def interrupted(self, state, step):
        save(self, state, step)
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
    for name in ("params_", "held_out_nll_", "candidates_", "n_iter_", "method_"):
        jax.tree.map(np.testing.assert_array_equal, getattr(model, name), getattr(whole, name))
    folders = {path.name for path in (tmp_path / "states").iterdir()}
    assert folders == {"gaussian-radius", "gaussian-adam"}
    model.save(tmp_path / "model.f8")
    assert Fisher8Regressor.load(tmp_path / "model.f8").checkpoint_dir is None


def test_a_folder_of_another_fit_is_refused(tmp_path):
    def fit(targets=TARGETS, **settings):
        model = Fisher8Regressor(**(SETTINGS | {"methods": "radius"} | settings))
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


def test_files_of_no_estimator_are_refused_or_predict(tmp_path):
    found = attack_estimators(tmp_path, rounds=80)
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found
    assert found["refused"] > 30


@pytest.mark.slow
def test_thousands_of_files_of_no_estimator(tmp_path):
    found = attack_estimators(tmp_path, rounds=3000, seed=1)
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("layer 000", lambda a: a[:, :1], r"layer 0/kernel is float32\[2, 1, 4\], not .*2, 2, 4"),
        ("layer 001", lambda a: a[:, :, :1], "layer 1/kernel is"),
        ("layer 001", lambda a: a[:1], "layer 1/kernel is"),
        ("layer 000", lambda a: a[0], "layers have no kernels of the form"),
    ],
)
def test_wrong_shapes_are_named_when_loading(tmp_path, place, change, message):
    fit_small().save(tmp_path / "model")
    artifact = load_artifact(tmp_path / "model")
    layer = artifact.trees["layers"][place]
    layer["kernel"] = change(layer["kernel"])
    save_artifact(tmp_path / "model", artifact.trees, config=artifact.config)
    with pytest.raises(ArtifactError, match=f"holds no whole Fisher8Regressor: {message}"):
        Fisher8Regressor.load(tmp_path / "model")


def test_the_committed_file_is_read_and_predicts_as_it_did():
    found = sample_estimator.predictions(Fisher8Regressor.load(sample_estimator.MODEL))
    right = json.loads(sample_estimator.PREDICTIONS.read_text())
    assert found.keys() == right.keys()
    for name, values in right.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
