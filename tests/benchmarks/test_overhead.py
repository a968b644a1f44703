"""The overhead benchmark: what it counts, on networks small enough for a test."""

import argparse

import jax.numpy as jnp
import numpy as np

from benchmarks.costs import overhead
from benchmarks.machinery.store import Store


def test_run_prints_stores_and_compares(tmp_path, capsys, monkeypatch):
    def tiny(rng):
        inputs = jnp.asarray(rng.normal(size=(8, 3)), jnp.float32)
        layers = overhead.dense(rng, 3, 4, 2)
        return overhead.Problem("tiny", overhead.apply_dense, layers, inputs, 2)

    for name in ("small_mlp", "large_mlp", "small_cnn"):
        monkeypatch.setattr(overhead, name, tiny)
    monkeypatch.setattr(
        overhead,
        "sharded_communication",
        lambda rng: {"devices": 8, **dict.fromkeys(overhead.LOSSES, 1)},
    )
    parser = argparse.ArgumentParser()
    overhead.add_arguments(parser)
    args = parser.parse_args(["--rounds", "4", "--results", str(tmp_path)])
    assert overhead.run(args) == 0
    assert "tiny" in capsys.readouterr().out
    (cell,) = Store(tmp_path).cells("overhead")
    rows = cell["result"]["networks"]
    assert len(rows) == 3 * len(overhead.BASELINES)
    assert all(row["median_ratio"] > 0 for row in rows)


def test_the_op_saves_one_array_more_and_the_fused_loss_none():
    """Beyond what plain NLL keeps for the backward pass."""
    problem = overhead.small_mlp(np.random.default_rng(0))
    targets = jnp.zeros(len(problem.inputs), jnp.float32)
    saved = {name: overhead.saved_bytes(name, problem, targets) for name in overhead.LOSSES}
    assert saved["fisher8"] - saved["nll"] <= targets.nbytes + 4
    assert saved["fisher8_nll"] <= saved["nll"]


def test_reduced_elements_counts_the_results_of_reductions():
    text = (
        "  %a = (f32[3,4]{1,0}, f32[2]{0}) all-reduce(%x, %y), to_apply=%add\n  %b = f32[] add(%c)"
    )
    assert overhead.reduced_elements(text) == 14
