"""One file: what comes back, what damage looks like, and what a killed writer leaves."""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import TargetScaler, load_artifact, save_artifact
from fisher8_jax.artifacts._archive import ArtifactError
from fisher8_jax.calibration import VarianceScaling

TREES = {
    "params": {
        "dense": {"kernel": jnp.arange(6.0).reshape(2, 3)},
        "half": jnp.ones(3, jnp.bfloat16),
    },
    "scaler": TargetScaler(np.array([1.0]), np.array([2.0])),
    "list": [jnp.zeros(0), jnp.array(3), np.array([True, False])],
    "array": jnp.array([1, 2]),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "folder" / "model.f8"
    save_artifact(path, TREES, config={"hidden": [50, 50], "name": "größe"})
    return path


def test_everything_comes_back(path):
    artifact = load_artifact(path, like=TREES)
    assert artifact.config == {"hidden": [50, 50], "name": "größe"}
    assert artifact.versions["jax"] == jax.__version__
    assert jax.tree.structure(artifact.trees) == jax.tree.structure(TREES)
    for ours, theirs in zip(jax.tree.leaves(artifact.trees), jax.tree.leaves(TREES), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_without_a_template_trees_are_dictionaries(path):
    trees = load_artifact(path).trees
    np.testing.assert_array_equal(trees["params"]["dense"]["kernel"], np.arange(6.0).reshape(2, 3))
    assert list(trees["list"]) == [0, 1, 2]
    assert list(trees["scaler"]) == ["shift", "scale"]
    np.testing.assert_array_equal(trees["array"], [1, 2])


def test_a_template_may_be_shapes_alone(path):
    like = jax.eval_shape(lambda: {"params": TREES["params"]})
    assert load_artifact(path, like=like).trees["params"]["half"].dtype == jnp.bfloat16


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    save_artifact(tmp_path / "again", TREES, config={"hidden": [50, 50], "name": "größe"})
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_damage_anywhere_is_noticed(path):
    content = path.read_bytes()
    intact, noticed = load_artifact(path), 0
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            result = load_artifact(path)
        except ArtifactError:
            noticed += 1
            continue
        # Some bytes mean nothing, such as a date in the archive's directory.
        jax.tree.map(np.testing.assert_array_equal, result.trees, intact.trees)
        assert result[1:] == intact[1:]
    assert noticed > len(content) / 7 / 2


@pytest.mark.parametrize("length", [0, 1, 30, 500, -1])
def test_a_truncated_file_is_an_error(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ArtifactError, match=r"is damaged|is not a file that"):
        load_artifact(path)


def test_foreign_files_are_named_as_such(path, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ArtifactError, match="is not a file that `save_artifact` wrote"):
        load_artifact(foreign)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ArtifactError, match="is not a file that `save_artifact` wrote"):
        load_artifact(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load_artifact(tmp_path / "nothing")


def test_a_changed_header_and_a_newer_format_are_noticed(path):
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def rewrite(change, checksum):
        header = json.loads(parts["header.json"])
        change(header["body"])
        if checksum:
            text = json.dumps(header["body"], sort_keys=True).encode()
            header["sha256"] = hashlib.sha256(text).hexdigest()
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (parts | {"header.json": json.dumps(header)}).items():
                archive.writestr(name, content)

    rewrite(lambda body: body["config"].update(hidden=[1]), checksum=False)
    with pytest.raises(ArtifactError, match="its header has changed"):
        load_artifact(path)
    rewrite(lambda body: body.update(format_version=2), checksum=True)
    with pytest.raises(ArtifactError, match="format version 2, this package reads up to 1"):
        load_artifact(path)


def test_a_template_that_does_not_fit_is_an_error(path):
    with pytest.raises(ArtifactError, match="holds no tree 'calibrator'; it holds: params"):
        load_artifact(path, like={"calibrator": jnp.zeros(1)})
    with pytest.raises(ArtifactError, match="does not have the structure"):
        load_artifact(path, like={"params": {"dense": jnp.zeros(1)}})
    with pytest.raises(ArtifactError, match=r"shape \(2,\).*the template has \(3,\)"):
        load_artifact(path, like={"array": jnp.zeros(3, TREES["array"].dtype)})


def test_mistakes_in_what_is_saved_are_named(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(TypeError, match=r"`params\['key'\]` is a random key"):
        save_artifact(path, {"params": {"key": jax.random.key(0)}})
    with pytest.raises(TypeError, match=r"`params` must be an array of numbers, got str"):
        save_artifact(path, {"params": "text"})
    with pytest.raises(TypeError, match="`config` must be plain JSON"):
        save_artifact(path, {}, config={"family": Gaussian})
    with pytest.raises(TypeError, match="would come back changed"):
        save_artifact(path, {}, config={"hidden": (50, 50)})
    assert not path.exists()


WRITER = """
import sys, numpy as np
from fisher8_jax.artifacts import save_artifact
for n in range(10**9):
    save_artifact(sys.argv[1], {"a": np.full(100_000, n)}, config={"n": n})
    print(n, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "model"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline()
        time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    artifact = load_artifact(path)
    np.testing.assert_array_equal(artifact.trees["a"], artifact.config["n"])


def test_a_calibrator_is_saved_with_its_model(tmp_path):
    dist = Gaussian(jnp.zeros(50, jnp.float32), jnp.zeros(50, jnp.float32))
    targets = 2 * jax.random.normal(jax.random.key(0), (50,), jnp.float32)
    calibrator = VarianceScaling.fit(dist, targets)
    save_artifact(tmp_path / "model", {"calibrator": calibrator, "params": {"w": jnp.ones(2)}})
    loaded = load_artifact(tmp_path / "model", like={"calibrator": calibrator}).trees["calibrator"]
    assert isinstance(loaded, VarianceScaling)
    np.testing.assert_array_equal(loaded.apply(dist).variance, calibrator.apply(dist).variance)
    by_name = VarianceScaling(**load_artifact(tmp_path / "model").trees["calibrator"])
    np.testing.assert_array_equal(by_name.factor, calibrator.factor)
