"""The divergence of steps whose radius is measured seldom or on part of the rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.costs import measured_radius
from benchmarks.costs.measured_radius import Form
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.store import Store

STEPS, SPLITS = 12, 2


@pytest.fixture
def trained(monkeypatch):
    """Ratios by form, of batches whose second half repeats the first."""
    network = Mlp((4,), jax.nn.silu)
    monkeypatch.setattr(measured_radius, "NETWORK", network)
    monkeypatch.setattr(measured_radius, "STEPS", STEPS)
    rng = np.random.default_rng(0)
    params = stack_members([network.init(rng, 3) for _ in range(SPLITS)])
    inputs, targets = rng.normal(size=(SPLITS, 20, 3)), rng.normal(size=(SPLITS, 20))
    half = rng.integers(0, 20, (SPLITS, STEPS, 4))
    rows = np.concatenate([half, half], -1)
    arrays = [jnp.asarray(x, jnp.float32) for x in (inputs, targets)]

    @functools.cache
    def train(form):
        measured_radius.train.clear_cache()
        return np.asarray(measured_radius.train(form, params, *arrays, jnp.asarray(rows))[1])

    return train


def test_steps_measured_on_all_rows_keep_the_radius(trained):
    ratios = trained(Form(1, 1))
    assert ratios.shape == (SPLITS, STEPS)
    assert ratios.max() < 1 + 1e-4
    assert ratios.max() > 0.99  # the bound on the parameters does not shorten all of them


def test_half_of_the_rows_suffices_where_the_rest_repeats_them(trained):
    np.testing.assert_allclose(trained(Form(1, 2)), trained(Form(1, 1)), rtol=2e-3)


def test_steps_that_rely_on_a_measurement_go_too_far(trained):
    seldom = trained(Form(4, 1))
    np.testing.assert_allclose(seldom[:, :4], trained(Form(1, 1))[:, :4], rtol=1e-3)
    assert seldom.max() > 1.01


def test_the_table_counts_by_group(tmp_path, monkeypatch):
    monkeypatch.setattr(measured_radius, "BATCHES", (32,))
    monkeypatch.setattr(measured_radius, "FORMS", (Form(1, 1), Form(8, 1)))
    monkeypatch.setattr(measured_radius, "GROUPS", {"chosen on": ("a", "b")})
    found = measured_radius.summary(np.array([[1.0, 3.0, 2.0, 99.0]]))
    assert found == {"mean": 2.0, "above_2": pytest.approx(1 / 3), "largest": 3.0}

    def row(form, name, nll):
        return {"batch": 32, "form": form, "set": name, "nll": nll} | found

    rows = [row("every step", name, 1.0) for name in "ab"]
    rows += [row("every 8 steps", name, nll) for name, nll in (("a", 1.5), ("b", 1.0))]
    store = Store(tmp_path)
    origin = {"command": "", "versions": {}}
    store.write(measured_radius.CELL, spec={}, result={"rows": rows}, provenance=origin)
    text = to_markdown("", [measured_radius.section(store)], None)
    assert "| 32 | every 8 steps | chosen on | 2.00 | 33.3 % | 3.0 | +0.250 |" in text
