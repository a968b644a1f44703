"""One file: what comes back, what is refused, and what damage looks like."""

import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import ArtifactError, load_artifact, save_artifact
from fisher8_jax.calibration import VarianceScaling
from tests.artifacts.sample import COMMITTED, CONFIG, TREES, craft, header_of, pack


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "folder" / "model.safetensors"
    save_artifact(path, TREES, config=CONFIG)
    return path


def check_same(ours, theirs):
    """To the bit."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), map(np.asarray, jax.tree.leaves(theirs)), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("source", ["new", "committed"])
def test_everything_comes_back_to_the_bit(path, source):
    """The committed file must be read by every later version."""
    artifact = load_artifact(path if source == "new" else COMMITTED, like=TREES)
    assert artifact.config == CONFIG
    assert set(artifact.versions) == {"fisher8_jax", "jax", "numpy", "safetensors"}
    check_same(artifact.trees, TREES)


def test_the_format_has_not_changed_unnoticed(path):
    """Whoever changes it counts the version up and commits a file of the new format."""
    (new, ours, data), (old, theirs, committed) = map(
        header_of, (path.read_bytes(), COMMITTED.read_bytes())
    )
    assert (new, data) == (old, committed)
    assert ours.keys() == theirs.keys()
    assert [ours[key] for key in ("format", "config")] == [1, theirs["config"]]


def test_without_a_template_trees_are_dictionaries(path):
    trees = load_artifact(path).trees
    np.testing.assert_array_equal(trees["params"]["dense"]["0"]["kernel"].reshape(-1) * 7, range(6))
    assert sorted(trees["scaler"]) == ["scale", "shift"]
    np.testing.assert_array_equal(trees["array"], [1, 2])


def test_a_template_may_be_shapes_alone(path):
    like = jax.eval_shape(lambda: {"params": TREES["params"]})
    check_same(load_artifact(path, like=like).trees["params"], TREES["params"])


def test_a_template_that_does_not_fit_is_an_error(path):
    with pytest.raises(ArtifactError, match="only one of them has 'calibrator'"):
        load_artifact(path, like={"calibrator": jnp.zeros(1)})
    with pytest.raises(ArtifactError, match=r"'params' in .* does not have the structure"):
        load_artifact(path, like={"params": {"dense": jnp.zeros(1)}})
    for other in (np.zeros(3, np.int32), np.zeros(2, np.int64)):
        with pytest.raises(ArtifactError, match=r"'array' has shape \(2,\) and dtype int32"):
            load_artifact(path, like={"array": other})


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    save_artifact(tmp_path / "again", TREES, config=CONFIG)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_trees_of_thousands_of_arrays_come_back(tmp_path):
    tree = [{"w": np.full((i % 3, 2), i)} for i in range(3000)]
    save_artifact(tmp_path / "model", {"params": tree})
    check_same(load_artifact(tmp_path / "model", like={"params": tree}).trees["params"], tree)


def test_damage_to_any_array_is_found_by_the_checksum(path):
    tensors, _, data = header_of(path.read_bytes())
    content = path.read_bytes()
    for tensor in tensors.values():
        start, end = (len(content) - len(data) + offset for offset in tensor["data_offsets"])
        for position in {start, end - 1} if end > start else ():
            damaged = bytearray(content)
            damaged[position] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(ArtifactError, match="damaged: its content does not have the SHA"):
                load_artifact(path)


def test_a_changed_configuration_is_found_by_the_checksum(path):
    tensors, body, data = header_of(path.read_bytes())
    path.write_bytes(pack(tensors, body | {"config": {"hidden": [1]}}, data))
    with pytest.raises(ArtifactError, match="damaged: its content does not have the SHA-256"):
        load_artifact(path)


def test_a_newer_format_says_who_wrote_it(path):
    tensors, body, data = header_of(path.read_bytes())
    path.write_bytes(pack(tensors, body | {"format": 2, "versions": {"fisher8_jax": "9"}}, data))
    with pytest.raises(
        ArtifactError, match=r"version 2, .* reads up to 1. It was .* fisher8_jax 9"
    ):
        load_artifact(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        pickle.dumps({"a": 1}),
        save({"a": np.zeros(3)}),
        bytes(100_000),
        craft({"__metadata__": {"other": "1"}}),
        (2**62).to_bytes(8, "little") + b"{}",
    ],
    ids=range(7),
)
def test_foreign_files_are_named_as_such(tmp_path, content):
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(ArtifactError, match="is not a file that `save_artifact` wrote"):
        load_artifact(tmp_path / "foreign")


def test_pipes_devices_and_folders_are_refused_and_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(ArtifactError, match="is not a regular file"):
            load_artifact(path)
    with pytest.raises(FileNotFoundError):
        load_artifact(tmp_path / "nothing")


LIMIT = "must be an array of numbers that safetensors can hold, got"


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), rf"{LIMIT} ndarray of dtype \[\('a'"),
        (np.zeros(2, np.longdouble), LIMIT),
        (np.zeros(2, np.complex128), f"{LIMIT} ndarray of dtype complex128"),
        (np.zeros(2, jnp.int4), f"{LIMIT} ndarray of dtype int4"),
        (np.array(["2020"], "M8[Y]"), LIMIT),
        (np.array([None, 1]), f"{LIMIT} ndarray of dtype object"),
        ("text", f"{LIMIT} str"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "is a masked array, whose mask would be"),
        (jax.random.key(0), r"is a random key. Save `jax.random.key_data\(key\)`"),
        ({"a/b": np.ones(1)}, "must not contain '/'"),
    ],
    ids=range(10),
)
def test_what_would_not_come_back_is_refused(tmp_path, leaf, message):
    with pytest.raises(TypeError, match=message):
        save_artifact(tmp_path / "model", {"a": [{"b": leaf}]})
    assert list(tmp_path.iterdir()) == []


class Twins(list):
    """A tree whose leaves share a path."""


jax.tree_util.register_pytree_with_keys(
    Twins,
    lambda twins: ([(jax.tree_util.DictKey("same"), leaf) for leaf in twins], None),
    lambda _, leaves: Twins(leaves),
)


def test_other_mistakes_in_what_is_saved_are_named(tmp_path):
    path, deep = tmp_path / "model", np.ones(1)
    for _ in range(100):
        deep = [deep]
    for trees, message in [
        ({"a": deep}, "lies deeper than 100 levels"),
        ({1: np.ones(1)}, "`trees` must have text as keys, got 1"),
        ({"__metadata__": np.ones(1)}, "'__metadata__'"),
        ({"a": Twins([np.ones(1), np.ones(1)])}, "Two arrays of `trees` have the same path"),
    ]:
        with pytest.raises(TypeError, match=message):
            save_artifact(path, trees)
    for config, message in [
        ({"family": Gaussian}, "must be plain JSON"),
        ({"hidden": (50, 50)}, "would come back changed"),
    ]:
        with pytest.raises(TypeError, match=message):
            save_artifact(path, {}, config=config)
    with pytest.raises(ValueError, match=r"takes 1677\d* bytes as JSON. Put numbers into `trees`"):
        save_artifact(path, {}, config="x" * 2**24)
    assert not path.exists()


def test_a_big_endian_array_comes_back_in_native_order(tmp_path):
    save_artifact(tmp_path / "model", {"a": np.arange(4, dtype=">f4")})
    found = load_artifact(tmp_path / "model").trees["a"]
    assert found.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(found, range(4))


def test_a_calibrator_is_saved_with_its_model(tmp_path):
    dist = Gaussian(jnp.zeros(50, jnp.float32), jnp.zeros(50, jnp.float32))
    targets = 2 * jax.random.normal(jax.random.key(0), (50,), jnp.float32)
    calibrator = VarianceScaling.fit(dist, targets)
    save_artifact(tmp_path / "model", {"calibrator": calibrator, "params": {"w": jnp.ones(2)}})
    loaded = load_artifact(tmp_path / "model", like={"calibrator": calibrator}).trees["calibrator"]
    np.testing.assert_array_equal(loaded.apply(dist).variance, calibrator.apply(dist).variance)
    by_name = VarianceScaling(**load_artifact(tmp_path / "model").trees["calibrator"])
    np.testing.assert_array_equal(by_name.factor, calibrator.factor)
