"""The cost of the natural gradient: three ways to the same gradient, measured on a tiny network."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.costs import network_cost, solver_errors
from benchmarks.costs.overhead import apply_dense, dense
from benchmarks.machinery.store import Store
from fisher8_jax import network_gradient


def tiny(rng, targets=1):
    inputs = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    return network_cost.Case("tiny", apply_dense, dense(rng, 3, 5, 2 * targets), inputs, 2)


@pytest.mark.parametrize("targets", [1, 2])
def test_the_rows_of_the_jacobian_give_the_same_gradient(targets):
    case = tiny(np.random.default_rng(0), targets)

    @jax.jit
    def both(params):
        step = network_gradient(
            case.predict_one, params, case.inputs, case.targets, damping=network_cost.DAMPING
        )
        return network_cost.rows_step(case, params, (), case.targets)[0], step.gradient

    moved, gradients = both(case.params)
    for before, after, gradient in zip(
        *map(jax.tree.leaves, (case.params, moved, gradients)), strict=True
    ):
        np.testing.assert_allclose(1e4 * (before - after), gradient, atol=2e-3)


def test_it_measures_stores_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(network_cost, "GROWTH", {"batch": (4, 8)})
    monkeypatch.setattr(network_cost, "NETWORKS", {"tiny": tiny})
    monkeypatch.setattr(solver_errors, "ROWS", 8)
    monkeypatch.setattr(solver_errors, "LOG_VARIANCES", (-6.0,))
    parser = argparse.ArgumentParser()
    network_cost.add_arguments(parser)
    args = parser.parse_args(["--rounds", "4", "--results", str(tmp_path)])
    assert network_cost.run(args) == 0
    shown = capsys.readouterr().out
    assert "tiny" in shown
    assert "rank 64" in shown
    plain, preconditioned = Store(tmp_path).read("network_cost/iterations")["rows"]
    assert (plain["rank"], preconditioned["rank"]) == (0, 64)
    assert preconditioned["error"] < 0.01
    result = {name: Store(tmp_path).read(f"network_cost/{name}") for name in ("tiny", "batch-4")}
    assert set(result["tiny"]["ratios"]) == {"adam", "radius", "network", "rows"}
    assert result["tiny"]["per_call"]["ratios"]["network"][1] > 0
    assert network_cost.draw(result).startswith(b"\x89PNG")
    monkeypatch.setattr(network_cost, "measure", None)  # what is stored is not measured again
    assert network_cost.run(args) == 0
