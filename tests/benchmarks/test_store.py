import json
import os

import numpy as np
import pytest

from benchmarks.store import Store, remove_leftovers, write_atomically

SPEC = {"rate": 0.1, "seed": 0}


def write(store: Store, name: str = "a/b", **result) -> None:
    store.write(name, spec=SPEC, result=result, provenance={"command": "x"})


def test_a_cell_is_read_back_to_the_bit(tmp_path):
    store = Store(tmp_path)
    values = np.random.default_rng(0).normal(size=5).astype(np.float32)
    write(store, rmse=values)
    read = store.read("a/b", SPEC)
    assert np.array_equal(np.array(read["rmse"], np.float32), values)


def test_numbers_that_are_not_finite_become_null(tmp_path):
    store = Store(tmp_path)
    write(store, rmse=[np.nan, np.inf, -np.inf, 1.0])
    assert store.read("a/b")["rmse"] == [None, None, None, 1.0]
    json.loads(store.path("a/b").read_text(), parse_constant=pytest.fail)


def test_a_missing_cell_and_one_of_another_spec_are_none(tmp_path):
    store = Store(tmp_path)
    assert store.read("a/b") is None
    write(store, rmse=[1.0])
    assert store.read("a/b", {**SPEC, "seed": 1}) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1.5", "2.5"),
        lambda text: text.replace('"seed": 0', '"seed": 1'),
        lambda text: "",
        lambda text: "[]",
        lambda text: "null",
    ],
)
def test_damage_is_noticed(tmp_path, damage):
    store = Store(tmp_path)
    write(store, rmse=[1.5])
    path = store.path("a/b")
    path.write_text(damage(path.read_text()))
    assert store.read("a/b") is None
    assert store.damaged("a") == [path]
    assert list(store.cells("a")) == []


def test_bytes_that_are_no_text_are_damage_too(tmp_path):
    store = Store(tmp_path)
    write(store, rmse=[1.5])
    store.path("a/b").write_bytes(b"\xff\xfe\x00")
    assert store.read("a/b") is None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "cell.json"
    write_atomically(path, b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["cell.json"]
    assert path.read_bytes() == b"old"


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "cell.json123.tmp").write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert list(tmp_path.rglob("*.tmp")) == []


def test_cells_come_in_the_order_of_their_names(tmp_path):
    store = Store(tmp_path)
    for name in ("b", "a", "c"):
        write(store, f"x/{name}", place=name)
    assert [cell["result"]["place"] for cell in store.cells("x")] == ["a", "b", "c"]
