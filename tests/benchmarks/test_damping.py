"""The benchmark of the damping: its two rules, in two steps, and what its tables show."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.damping import command, kept, levenberg, scales, scales_report
from benchmarks.experiments.damping.moments import SecondMoments, full_roots
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.store import Store
from fisher8_jax import fisher8_nll, network_gradient
from fisher8_jax.curvature import GradientState
from tests.curvature.dense import dense_natural_gradient, relative_error

ROWS, FEATURES = 6, 3
PREDICT = Predict(Mlp((5,), jax.nn.silu))


def draw():
    rng = np.random.default_rng(0)
    params = jax.tree.map(jnp.float64, PREDICT.network.init(rng, FEATURES))
    return (
        params,
        jnp.asarray(rng.normal(size=(ROWS, FEATURES))),
        jnp.asarray(rng.normal(size=ROWS)),
    )


@pytest.mark.parametrize("decay", [None, 0.5])
def test_the_scaled_gradient_is_that_of_a_dense_solve(decay):
    """The second step of factored damping, with and without momentum."""
    params, x, y = draw()
    start = GradientState.zeros(params, momentum=decay) if decay else None
    remembered = scales.Remembered(start, SecondMoments.zeros(params))
    step = jax.jit(functools.partial(scales.natural_gradient, PREDICT))
    first, _, remembered = step(remembered, params, x, y, 0.1)
    found, _, after = step(remembered, params, x, y, 0.1)
    scale = ravel_pytree(full_roots(after.moments.damping_scale()))[0] ** 2
    options = {"where": None, "scale": scale}
    expected = dense_natural_gradient(PREDICT, params, x, y, 0.1, **options)
    if decay:  # the damping pulls to the momentum: (G + damping) d = g + damping momentum
        matrix = dense_natural_gradient(PREDICT, params, x, y, 0.1, return_matrix=True, **options)
        momentum = decay * np.asarray(ravel_pytree(first)[0])
        expected = np.linalg.solve(matrix, matrix @ expected + 0.1 * np.asarray(scale) * momentum)
        assert relative_error(after.momentum.momentum, expected) < 1e-9
    assert relative_error(found, expected) < 1e-9


def test_second_moments_are_those_of_adafactor():
    """Against the means of squares written out, with the bias of the start taken out."""
    rng = np.random.default_rng(8)
    gradients = [{"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)} for _ in range(3)]
    moments = SecondMoments.zeros({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    np.testing.assert_array_equal(moments.damping_scale()["bias"], 1)
    for g in gradients:
        moments = moments.add(jax.tree.map(jnp.asarray, g), decay=0.9)
    moments = moments.add({"kernel": jnp.full((3, 2), jnp.nan), "bias": jnp.ones(2)}, decay=0.9)
    weights = 0.1 * 0.9 ** np.arange(2, -1, -1)
    weights /= weights.sum()
    squares = sum(w * g["kernel"] ** 2 for w, g in zip(weights, gradients, strict=True))
    row, column = squares.mean(1), squares.mean(0)
    expected = np.sqrt(np.outer(row / row.mean(), column))
    scale = moments.damping_scale()
    np.testing.assert_allclose(scale["kernel"].full(), expected, rtol=1e-6)
    squares = sum(w * g["bias"] ** 2 for w, g in zip(weights, gradients, strict=True))
    np.testing.assert_allclose(scale["bias"], np.sqrt(squares), rtol=1e-6)


def test_moments_are_those_of_fisher8_gradients():
    params, x, y = draw()
    remembered = scales.Remembered(None, SecondMoments.zeros(params))
    _, _, after = scales.natural_gradient(PREDICT, remembered, params, x, y, 0.1)
    gradient = jax.grad(lambda p: fisher8_nll(PREDICT(p, x), y).mean())(params)
    expected = SecondMoments.zeros(params).add(gradient)
    for ours, theirs in zip(*map(jax.tree.leaves, (after.moments, expected)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_reduction_ratio_compares_with_the_quadratic_model():
    """A tiny step decreases the loss as its slope says, a long one as the formula says."""
    params, x, y = draw()
    step = jax.jit(lambda p: network_gradient(PREDICT, p, x, y, damping=0.1))(params)

    @jax.jit
    def value(scale):
        moved = jax.tree.map(lambda p, g: p - scale * g, params, step.gradient)
        return PREDICT(moved, x).nll(y).mean()

    assert levenberg.reduction_ratio(step, 1e-4, value(1e-4)) == pytest.approx(1, abs=1e-3)
    expected = (step.value - value(0.7)) / (0.7 * step.slope - 0.49 * step.step_kl)
    found = levenberg.reduction_ratio(step, 0.7, value(0.7))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_damping_follows_the_ratio_within_its_bounds():
    ratios = jnp.array([0.9, 0.5, 0.1, -3.0, jnp.nan])
    adjusted = levenberg.adjust_damping(jnp.full(5, 1.0), ratios, factor=2.0)
    np.testing.assert_allclose(adjusted, [0.5, 1, 2, 2, 2])
    assert levenberg.adjust_damping(1e-3, jnp.asarray(1.0)) == pytest.approx(1e-3)
    assert levenberg.adjust_damping(10.0, jnp.asarray(0.0)) == 10


@pytest.mark.slow
def test_it_trains_stores_and_shows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(levenberg, "WIDTH", 3)
    monkeypatch.setattr(levenberg, "FIXED", (0.1,))
    monkeypatch.setattr(levenberg, "PROBLEMS", {"wave": None})
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--experiments", "levenberg", "--steps", "2", "--seeds", "2"]
    assert command.run(parser.parse_args([*words, "--results", str(tmp_path)])) == 0
    assert "wave" in capsys.readouterr().out
    rows = Store(tmp_path).read(levenberg.CELL)["rows"]
    assert [row["damping"] for row in rows] == [0.1, "rule"]
    assert rows[0]["last_damping"] != rows[1]["last_damping"]


def make_row(form, damping, first, second):
    return {
        "budget": "short",
        "form": form,
        "momentum": 0.0,
        "damping": damping,
        "steps": 10,
        "nll": {"first": first, "second": second},
    }


def test_the_average_is_shown_for_the_recipe_alone():
    """The one damping, no momentum, no scale."""
    values = dict.fromkeys(("yacht", "energy", "kin8nm", "wine"), 0.25)
    rows = [
        make_row(form, damping, 0.0, 0.0) | {"nll": values, "nll_of_last": values | {"wine": 2.0}}
        for form, damping in (("identity", 0.1), ("identity", 0.3), ("factored", 0.3))
    ]
    last, average = scales_report.average_rows("small", rows)
    assert last == ["small", "short", "last", "0.250", "0.250", "0.250", "2.000"]
    assert average == ["small", "short", "average", "0.250", "0.250", "0.250", "0.250"]


def test_the_table_shows_each_way_with_the_damping_that_suits_all_sets(tmp_path):
    rows = [
        make_row("identity", 0.1, 0.0, 9.0),
        make_row("identity", 1.0, 2.0, 1.0),
        make_row("factored", 3.0, None, 0.0),  # diverged on one set: never the best
        make_row("factored", 10.0, 1.0, 3.0),
    ]
    assert [row["damping"] for row in scales_report.best_rows(rows)] == [1.0, 10.0]
    seconds = {"identity-0.0": 1e-4, "factored-0.0": 2e-4}
    Store(tmp_path).write(
        "damping/scales-small",
        spec={"experiment": "scales", "network": "small"},
        result={"rows": rows, "seconds_per_step": seconds},
        provenance={},
    )
    table, *_ = scales_report.blocks(Store(tmp_path))
    assert table.rows == [
        ["short", "identity", "0", "1", "100", "10", "2.000", "**1.000**", "1.500"],
        ["short", "factored", "0", "10", "200", "10", "**1.000**", "3.000", "2.000"],
    ]


def test_kept_rows_enter_the_curvature_alone(monkeypatch):
    """Against a dense matrix of all rows and the gradient of the new ones."""
    monkeypatch.setattr(kept, "NETWORK", PREDICT.network)
    params, x, y = draw()
    way = kept.Way(new=2, kept=4)
    found = jax.jit(functools.partial(kept.gradient, way))(params, x, y, 0.1).gradient
    matrix = dense_natural_gradient(PREDICT, params, x, y, 0.1, where=None, return_matrix=True)
    plain = jax.grad(lambda p: PREDICT(p, x[:2]).nll(y[:2]).mean())(params)
    expected = np.linalg.solve(matrix, np.asarray(ravel_pytree(plain)[0]))
    assert relative_error(found, expected) < 1e-9


def test_kept_rows_are_those_of_the_steps_before():
    fold = scales.Fold(1, None, None, [np.arange(100, 120)] * kept.SPLITS, None)
    rows = kept.draw_rows("yacht", fold, kept.Way(4, 8), 7)
    assert rows.shape == (7, kept.SPLITS, 12)
    for step in range(2, 7):
        np.testing.assert_array_equal(rows[step, :, 4:8], rows[step - 1, :, :4])
        np.testing.assert_array_equal(rows[step, :, 8:], rows[step - 2, :, :4])
    # Its new rows are the ones that the way without memory sees.
    np.testing.assert_array_equal(rows[..., :4], kept.draw_rows("yacht", fold, kept.Way(4, 0), 7))


def test_the_damping_of_a_way_is_chosen_on_four_sets():
    def row(damping, chosen, others):
        nll = dict.fromkeys(kept.SELECTION, chosen) | dict.fromkeys(kept.OTHERS, others)
        return {"budget": "short", "way": "32 new", "damping": damping, "steps": 5, "nll": nll}

    rows = [row(0.1, 2.0, -9.0), row(0.3, 1.0, 3.0), row(1.0, None, 0.0)]
    assert kept.best_rows(rows) == [rows[1]]
    assert kept.mean_over(kept.SELECTION, rows[2]) == np.inf
