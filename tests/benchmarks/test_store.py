import hashlib
import json

import numpy as np
import pytest

from benchmarks.machinery.store import Store

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


def test_a_written_cell_takes_away_what_killed_processes_left(tmp_path):
    store = Store(tmp_path)
    write(store, rmse=[1.5])
    (tmp_path / "a" / ".fisher8-dead.tmp").write_bytes(b"half")
    write(store, rmse=[2.5])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]


def test_cells_come_in_the_order_of_their_names(tmp_path):
    store = Store(tmp_path)
    for name in ("b", "a", "c"):
        write(store, f"x/{name}", place=name)
    assert [cell["result"]["place"] for cell in store.cells("x")] == ["a", "b", "c"]


def test_a_cell_without_its_records_is_damaged_whatever_its_checksum_says(tmp_path):
    store = Store(tmp_path)
    for body in ({}, {"spec": SPEC}, {"spec": SPEC, "result": {}, "provenance": {}, "more": 1}):
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        checksum = hashlib.sha256(text.encode()).hexdigest()
        store.path("b").write_text(json.dumps({"checksum": checksum, **body}))
        assert store.read("b", SPEC) is None
    store.path("b").write_text("[" * 100_000)
    assert store.read("b") is None


def test_keys_that_would_become_one_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Two keys have the same text: 1, '1'"):
        write(Store(tmp_path), rmse={1: 0.0, "1": 1.0})
