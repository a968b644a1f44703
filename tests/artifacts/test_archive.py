"""One file: what comes back, what damage looks like, and what a killed writer leaves."""

import hashlib
import json
import pathlib
import pickle
import sys
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import ArtifactError, TargetScaler, load_artifact, save_artifact
from fisher8_jax.artifacts._format import FORMAT_VERSION
from fisher8_jax.calibration import VarianceScaling
from tests.artifacts import sample

FORMATS = pathlib.Path(__file__).parent / "formats"

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


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (np.arange(4, dtype=">f4"), "must be little-endian, got dtype >f4"),
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), r"must be an array of numbers.*\('a', '<i4'\)"),
        (np.zeros(2, np.longdouble), "must be an array of numbers, got ndarray of dtype"),
        (np.array(["2020"], "M8[Y]"), "must be an array of numbers"),
        (np.array([None, 1]), "must be an array of numbers, got ndarray of dtype object"),
        (np.array([b"x"]), "must be an array of numbers"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "is a masked array, whose mask would be"),
        ({1.5: np.ones(1)}, "must have text or integers as keys, got 1.5 of type float"),
        ({(1, 2): np.ones(1)}, "must have text or integers as keys"),
        ({True: np.ones(1)}, "must have text or integers as keys, got True"),
    ],
    ids=range(10),
)
def test_what_would_not_come_back_to_the_bit_is_refused(tmp_path, leaf, message):
    with pytest.raises(TypeError, match=message):
        save_artifact(tmp_path / "model", {"a": leaf})
    with pytest.raises(TypeError, match=message):
        save_artifact(tmp_path / "model", {"a": [{"b": leaf}]})
    assert list(tmp_path.iterdir()) == []


def test_arrays_in_any_order_come_back_to_the_bit(tmp_path):
    array = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    trees = {
        "turned": array.T,
        "steps": array[:, ::-2, 1:],
        "one": np.broadcast_to(np.float32(1.5), (2, 2)),
        "scalars": [np.float16(0.1), 3, 2.5, True, np.int64(2**62)],
    }
    save_artifact(tmp_path / "model", trees)
    back = load_artifact(tmp_path / "model", like=trees).trees
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(trees), strict=True):
        assert ours.dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(ours, theirs)


def test_other_mistakes_in_what_is_saved_are_named(tmp_path, monkeypatch):
    path, deep = tmp_path / "model", np.ones(1)
    for _ in range(101):
        deep = [deep]
    with pytest.raises(TypeError, match="lies deeper than 100 levels"):
        save_artifact(path, {"a": deep})
    with pytest.raises(TypeError, match="`trees` must have text as keys, got 1"):
        save_artifact(path, {1: np.ones(1)})
    with pytest.raises(ValueError, match=r"take 16777\d* bytes as JSON.*Put numbers into `trees`"):
        save_artifact(path, {}, config="x" * 2**24)
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(RuntimeError, match="this machine is big-endian"):
        save_artifact(path, {})
    assert not path.exists()


def read_members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("version", [1])
def test_files_of_every_format_are_read_to_the_bit(version):
    """Committed when the format was current; `tests/artifacts/sample.py` says what they hold."""
    path = FORMATS / f"format_{version}.f8"
    artifact = load_artifact(path, like=sample.TREES)
    assert artifact.config == sample.CONFIG
    assert artifact.versions["fisher8_jax"] == "0.1.0"
    for ours, theirs in zip(
        jax.tree.leaves(artifact.trees), jax.tree.leaves(sample.TREES), strict=True
    ):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()
    assert load_artifact(path).trees["params"]["dense"][0]["kernel"].dtype == np.float32


def test_the_format_has_not_changed_unnoticed(tmp_path):
    """Whoever changes the bytes counts `FORMAT_VERSION` up and commits a file of the new format."""
    save_artifact(tmp_path / "new", sample.TREES, config=sample.CONFIG)
    new, old = read_members(tmp_path / "new"), read_members(FORMATS / f"format_{FORMAT_VERSION}.f8")
    bodies = [json.loads(members.pop("header.json"))["body"] for members in (new, old)]
    for body in bodies:
        body.pop("versions")
    assert bodies[0] == bodies[1]
    assert new == old


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
