"""The command from end to end on a small set: results, resumption, errors."""

import argparse
import shutil

import jax
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.experiments.uci import command as uci
from benchmarks.experiments.uci import jobs as uci_jobs
from benchmarks.machinery.store import Store


@pytest.fixture(autouse=True)
def single_precision():
    """As users run it."""
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True)
def small_shapes(monkeypatch):
    monkeypatch.setattr(uci_jobs, "PADDED_TRAIN_ROWS", 96)
    monkeypatch.setattr(uci_jobs, "PADDED_TEST_ROWS", 16)
    uci_jobs.load_prepared.cache_clear()


def command(data_root, results, *more):
    sets = ["--datasets", "yacht", "power", "--optimizers", "sgd", "--methods", "fisher8"]
    rates = ["--rates", "0.01", "0.1", "--workers", "1"]
    where = ["--data-dir", data_root, "--results", results, "--cache-dir", data_root / "fast"]
    return main(["uci", *sets, *rates, *map(str, where), *more])


def contents(results):
    return {path.name: path.read_bytes() for path in (results / "uci").glob("*")}


def test_interrupted_or_damaged_results_end_with_the_same_bytes(data_root, tmp_path, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert command(data_root, whole) == 0
    expected = contents(whole)
    assert len(expected) == 4
    shutil.copytree(whole, broken)
    (broken / "uci" / "sgd-0.01-yacht-fisher8.json").unlink()
    damaged = broken / "uci" / "sgd-0.1-power-fisher8.json"
    damaged.write_bytes(damaged.read_bytes()[:300])
    (broken / "uci" / ".fisher8-0123456789abcdef.tmp").write_bytes(b"{")
    capsys.readouterr()
    assert command(data_root, broken) == 0
    assert "is damaged and will be computed again" in capsys.readouterr().out
    assert contents(broken) == expected
    assert command(data_root, broken) == 0
    assert "All 4 cells are stored" in capsys.readouterr().out
    cell = Store(whole).read("uci/sgd-0.01-yacht-fisher8")
    assert {len(values) for values in cell.values()} == {20}
    # targets are 3 + 2 x0 + noise, whose std is about 2: training must have helped
    assert np.mean(Store(whole).read("uci/sgd-0.1-yacht-fisher8")["rmse"]) < 1.5


def test_unknown_names_and_missing_data_end_with_a_message(data_root, tmp_path, capsys):
    assert command(data_root, tmp_path, "--datasets", "iris") == 1
    assert "has no 'iris'. There are: yacht, concrete" in capsys.readouterr().err
    assert command(data_root, tmp_path, "--methods", "magic") == 1
    assert "has no 'magic'" in capsys.readouterr().err
    assert command(data_root, tmp_path, "--data-dir", str(tmp_path / "none")) == 1
    assert "must name an existing folder" in capsys.readouterr().err


def test_the_table_of_commands_and_its_errors(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "sinusoid" in capsys.readouterr().out
    assert main(["nothing"]) == 2
    assert "There is no benchmark 'nothing'" in capsys.readouterr().err


def test_defaults_are_the_published_tables(data_root, tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    uci.add_arguments(parser)
    args = parser.parse_args(["--cache-dir", str(tmp_path)])
    monkeypatch.setattr(uci, "prepare", lambda names, *rest: dict.fromkeys(names, tmp_path))
    jobs = uci.make_jobs(args)
    assert len(jobs) == 8 * 5 * 2
    # 8 sets x 5 methods x 9 rates; the paper leaves unit variance out at 0.005
    assert sum(len(job.rates) for job in jobs) == 360
