import numpy as np
import pooch
import pytest

from benchmarks.experiments.uci import data as uci_data
from benchmarks.experiments.uci.data import Split, load, prepare, standardize
from benchmarks.machinery import data as data_dir
from benchmarks.machinery.data import DataUnavailableError


def test_splits_hold_the_rows_that_the_files_name(data_root, tmp_path):
    path = prepare(["yacht"], data_root, tmp_path / "fast")["yacht"]
    folder = data_root / "uci" / "yacht"
    data = np.loadtxt(folder / "data.txt")
    splits = load(path)
    assert len(splits) == 20
    for k in (0, 7, 19):
        rows = np.loadtxt(folder / f"index_test_{k}.txt", dtype=int)
        assert np.array_equal(splits[k].test_inputs, data[rows, :6])
        assert np.array_equal(splits[k].test_targets, data[rows, 6])
        assert len(splits[k].train_targets) == 72
    assert uci_data.train_rows(path) == 72


def test_the_fast_copy_is_used_again_and_renewed_when_a_file_changes(data_root, tmp_path):
    first = prepare(["yacht"], data_root, tmp_path / "fast")["yacht"]
    written = first.stat().st_mtime_ns
    assert prepare(["yacht"], data_root, tmp_path / "fast")["yacht"] == first
    assert first.stat().st_mtime_ns == written
    text = data_root / "uci" / "yacht" / "data.txt"
    np.savetxt(text, 2 * np.loadtxt(text))
    second = prepare(["yacht"], data_root, tmp_path / "fast")["yacht"]
    assert second != first
    assert np.allclose(load(second)[0].test_targets, 2 * load(first)[0].test_targets)


def test_standardisation_uses_the_training_part_and_keeps_constant_columns():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(5, 3, 30), np.full(30, 7.0)])
    targets = rng.normal(-2, 4, 30)
    scaled = standardize(Split(inputs[:20], targets[:20], inputs[20:], targets[20:]))
    train = scaled.split.train_inputs
    assert np.allclose(train[:, 0].mean(), 0)
    assert np.allclose(train[:, 0].std(), 1)
    assert np.all(train[:, 1] == 0)
    back = scaled.split.test_targets * scaled.target_scale + scaled.target_shift
    assert np.allclose(back, targets[20:])
    assert scaled.target_scale == targets[:20].std()


def test_a_data_directory_that_does_not_exist_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataUnavailableError, match="`--data-dir` must name an existing folder"):
        prepare(["yacht"], tmp_path / "nowhere", tmp_path)
    monkeypatch.setenv("FISHER8_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataUnavailableError, match="FISHER8_DATA must name an existing folder"):
        prepare(["yacht"], None, tmp_path)


def test_the_environment_variable_is_used_and_the_flag_comes_first(data_root, monkeypatch):
    monkeypatch.setenv("FISHER8_DATA", str(data_root))
    assert data_dir.data_dir(None) == data_root
    assert data_dir.data_dir(data_root.parent) == data_root.parent


def test_a_data_directory_without_the_set_says_what_it_must_hold(data_root, tmp_path):
    with pytest.raises(DataUnavailableError, match=r"must hold `uci/kin8nm/data.txt`"):
        prepare(["kin8nm"], data_root, tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("index_train_3.txt", None, "cannot be read"),
        ("data.txt", "1 2 three\n", "cannot be read"),
        ("index_test_0.txt", "4\n400\n", "name rows beyond the 80"),
    ],
)
def test_bad_files_are_named(data_root, tmp_path, file, content, message):
    path = data_root / "uci" / "power-plant" / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DataUnavailableError, match=message):
        prepare(["power"], data_root, tmp_path / "fast")


def test_offline_the_message_says_what_to_do(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.delenv("FISHER8_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    monkeypatch.setattr(pooch.Pooch, "fetch", offline)
    with pytest.raises(DataUnavailableError) as caught:
        prepare(["yacht"], None, tmp_path / "fast")
    assert "offline" in str(caught.value)
    assert "--data-dir" in str(caught.value)
    assert "FISHER8_DATA" in str(caught.value)


def test_a_wrong_checksum_is_an_error(tmp_path, monkeypatch):
    def wrong(self, file, **kwargs):
        raise ValueError(f"SHA256 hash of downloaded file ({file}) does not match")

    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    monkeypatch.setattr(pooch.Pooch, "fetch", wrong)
    with pytest.raises(DataUnavailableError, match="is not the expected one"):
        data_dir.fetch("https://example.org/", {"a.txt": "0" * 64}, "uci")


def test_every_set_has_checksums_of_all_its_files():
    for columns in uci_data.DATASETS.values():
        files = uci_data._published_files(columns.folder)
        assert len(files) == 44  # data, features, target, n_splits and 20 splits of two parts
        assert all(len(digest) == 64 for digest in files.values())
