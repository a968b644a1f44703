"""The cost of a posterior: sizes, and what is stored is printed."""

import jax
import pytest

from benchmarks.costs import posterior_cost
from benchmarks.costs.posterior_cost import cell_of, dense_bytes, params_of, problem, spec_of
from benchmarks.machinery.store import Store


def test_sizes():
    _, _, _, params = problem(10, 16)
    assert params_of(16) == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert dense_bytes(10, 16) == 8 * (20 * params_of(16) + 2 * 20**2)


def test_both_ways_are_measured():
    found = posterior_cost.posterior_costs(20, 4)
    assert found["form"] in ("dual", "primal")
    assert found["used_rows"] == 20
    assert min(found[name] for name in ("cold", "warm", "predict")) > 0
    assert posterior_cost.dense_costs(20, 4)["cold"] > 0


def test_what_is_stored_is_printed(tmp_path):
    store = Store(tmp_path)
    found = {"cold": 2.0, "warm": None, "predict": 0.5, "form": "last_layer", "used_rows": 100}
    found |= {"peak": 3e6, "before": 1e6, "dense": None}
    store.write(cell_of(300, 50), spec=spec_of(300, 50), result=found, provenance={})
    section = posterior_cost.section(store)
    assert section.blocks[-1].rows == [
        ["50", "300", "last layer, 100 rows", "2.00", "", "0.50", "2", "", ""]
    ]
    assert section.blocks[1].png.startswith(b"\x89PNG")


@pytest.fixture(autouse=True)
def keep_settings():
    """The dense way asks for float64, which tests have anyway."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
