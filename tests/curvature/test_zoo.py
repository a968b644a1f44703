"""Every odd network against a dense float64 solve: alone, under vmap, shard_map and donation."""

import pytest

from benchmarks.machinery.store import Store
from tests.curvature.networks import NETWORKS
from tests.curvature.zoo import ZOO
from tests.curvature.zoo_errors import TABLE, USES, alone, in_float32, spec, table

# Donation shows the gradient as a difference of parameters, which rounds once more.
BOUNDS = {"alone": 1e-9, "vmap": 1e-9, "shard_map": 1e-9, "donation": 1e-8, "float32": 1e-4}


@pytest.mark.parametrize("name", [name for name in ZOO if name not in NETWORKS])
def test_alone(name):
    assert alone(name) < BOUNDS["alone"]
    assert in_float32(name) < BOUNDS["float32"]


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ZOO)
def test_every_use(name, use):
    assert USES[use](name) < BOUNDS[use]


def test_the_table_is_that_of_the_stored_results():
    """Also of the rows there: all networks, all uses, within the bounds."""
    store = Store()
    assert TABLE.read_text() == table(store)
    for name in ZOO:
        found = store.read(f"zoo/{name}", spec(name))
        assert all(found[use] < BOUNDS[use] for use in USES), (name, found)
