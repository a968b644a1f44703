"""The file of the estimator: read by later versions, refused when it is no estimator."""

import json
import os
import tracemalloc

import jax
import numpy as np
import pytest

from fisher8_jax.artifacts import ArtifactError, load_artifact, save_artifact
from fisher8_jax.estimator import Fisher8Regressor
from tests.artifacts import sample_estimator
from tests.attacks import BAD
from tests.attacks.estimators import MOST, attack_estimators, fit_small


@pytest.fixture(autouse=True, scope="module")
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def model(default_jax):
    return fit_small()


@pytest.fixture
def rewrite(model, tmp_path):
    """Writes the file of an estimator after a change to its configuration and its trees."""

    def change_and_write(change):
        model.save(tmp_path / "model")
        artifact = load_artifact(tmp_path / "model")
        change(artifact.config, artifact.trees)
        save_artifact(tmp_path / "model", artifact.trees, config=artifact.config)
        return tmp_path / "model"

    return change_and_write


@pytest.mark.parametrize("size", [10**9, 10**13])
def test_a_size_in_the_file_allocates_nothing(rewrite, size):
    path = rewrite(lambda config, _: config.update(target_shape=[size]))
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match="layer 1/kernel is"):
            Fisher8Regressor.load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_a_file_cannot_set_a_folder(rewrite, model, tmp_path):
    for folder in (str(tmp_path / "evil"), None):
        path = rewrite(lambda config, _, f=folder: config["settings"].update(checkpoint_dir=f))
        with pytest.raises(ArtifactError, match="it sets `checkpoint_dir`"):
            Fisher8Regressor.load(path)
    model.set_params(checkpoint_dir=str(tmp_path / "states")).save(tmp_path / "model")
    model.set_params(checkpoint_dir=None)
    assert "states" not in (tmp_path / "model").read_text("latin-1")
    assert Fisher8Regressor.load(tmp_path / "model").checkpoint_dir is None


def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="is not a regular file"):
        Fisher8Regressor.load(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("layer", "change", "message"),
    [
        ("0", lambda a: a[:, :1], r"layer 0/kernel is float32\[2, 1, 4\], not .*2, 34, 4"),
        ("1", lambda a: a[:, :, :1], "layer 1/kernel is"),
        ("1", lambda a: a[:1], "layer 1/kernel is"),
        ("0", lambda a: a[0], "layer 0/kernel is"),
    ],
)
def test_wrong_shapes_are_named_when_loading(rewrite, layer, change, message):
    def change_layer(_, trees):
        trees["layers"][layer]["kernel"] = change(trees["layers"][layer]["kernel"])

    with pytest.raises(ArtifactError, match=f"holds no whole Fisher8Regressor: {message}"):
        Fisher8Regressor.load(rewrite(change_layer))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=5), "of version 5, this package reads version 4"),
        (lambda c: c["settings"].update(hidden_layer_sizes=[5]), "layer 0/kernel is"),
        (lambda c: c["settings"].update(hidden_layer_sizes=[4, 4]), "there are 2 layers for the"),
        (lambda c: c.update(kind="Other"), "holds another model than a Fisher8Regressor"),
    ],
    ids=range(4),
)
def test_a_configuration_that_does_not_fit_is_named(rewrite, change, message):
    with pytest.raises(ArtifactError, match=message):
        Fisher8Regressor.load(rewrite(lambda config, _: change(config)))


@pytest.mark.parametrize("rounds", [80, pytest.param(3000, marks=pytest.mark.slow)])
def test_files_of_no_estimator_are_refused_or_predict(tmp_path, rounds):
    found = attack_estimators(tmp_path, rounds=rounds, seed=rounds)
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found
    assert found["refused"] > rounds // 3


def test_the_committed_file_is_read_and_predicts_as_it_did():
    found = sample_estimator.predictions(Fisher8Regressor.load(sample_estimator.MODEL))
    right = json.loads(sample_estimator.PREDICTIONS.read_text())
    assert found.keys() == right.keys()
    for name, values in right.items():
        # A small posterior variance is the difference of large ones, which compilers round as
        # they like.
        np.testing.assert_allclose(found[name], values, rtol=1e-3, err_msg=name)
