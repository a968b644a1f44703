"""The record and its bootstrap intervals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fisher8_jax import Gaussian, metrics
from fisher8_jax.metrics import _bootstrap as bootstrap_module
from fisher8_jax.metrics._bootstrap import draw_counts


def overconfident(n, targets=2, seed=0, dtype=jnp.float64):
    rng = np.random.default_rng(seed)
    dist = Gaussian(*jnp.asarray(rng.normal(size=(2, n, targets)), dtype))
    noise = jnp.asarray(rng.normal(size=(n, targets)), dtype)
    return dist, dist.mean + 1.2 * dist.std * noise


def test_table_is_aligned_and_names_its_targets():
    dist, y = overconfident(24)
    key = jax.random.key(0)
    record = metrics.evaluate(dist, y, bootstrap=metrics.Bootstrap(key, resamples=20))
    lines = record.table(["Om", "S8"]).splitlines()
    assert lines[0].startswith("[95 % bootstrap]")
    assert lines[0].split()[-2:] == ["Om", "S8"]
    assert {len(line) for line in lines} == {len(lines[0])}
    labels = "\n".join(lines)
    for label in ("points", "non-finite", "NLL (with constant)", "coverage 68.3 %", "mean z^2"):
        assert label in labels
    assert f"{float(record.rmse[0]):.4g} [{float(record.lower.rmse[0]):.4g}, " in labels
    assert "[0]" in str(record).splitlines()[0]
    without = metrics.evaluate(dist, y, constant=False)
    assert "NLL (without constant)" in str(without)
    with pytest.raises(ValueError, match="`target_names` must be a sequence of 2 names"):
        record.table(["Om"])


def test_many_targets_are_cut_short_and_tracers_do_not_fail():
    dist, y = overconfident(4, targets=12)
    assert str(metrics.evaluate(dist, y)).endswith("... and 4 more columns")
    texts = []

    @jax.jit
    def run(dist, y):
        record = metrics.evaluate(dist, y)
        texts.append(str(record))
        return record

    assert run(dist, y).rmse.shape == (12,)
    assert texts[0].startswith("Evaluation(")
    shapes = jax.eval_shape(metrics.evaluate, dist, y)
    assert str(shapes).startswith("Evaluation(count=ShapeDtypeStruct")


def test_as_dict_has_one_entry_per_level():
    dist, y = overconfident(24)
    record = metrics.evaluate(dist, y)
    entries = record.as_dict()
    assert record.levels[2] == 0.9
    np.testing.assert_array_equal(entries["coverage_0.9"], record.coverage[:, 2])
    np.testing.assert_array_equal(entries["rmse"], record.rmse)
    assert {len(value) for value in entries.values()} == {2}
    assert json.loads(json.dumps(entries, allow_nan=False)) == entries
    diverged = metrics.evaluate(Gaussian(jnp.full(24, jnp.nan), jnp.zeros(24)), y[:, 0])
    assert diverged.as_dict()["rmse"] is None
    assert diverged.as_dict()["count"] == 24


def test_record_is_a_pytree_that_vmap_stacks():
    dist, y = overconfident(24)
    key = jax.random.key(0)

    def run(dist, y, key):
        settings = metrics.Bootstrap(key, resamples=20)
        return metrics.evaluate(dist, y, bootstrap=settings)

    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), (dist, y))
    records = jax.vmap(run, in_axes=(0, 0, None))(*stacked, key)
    one = run(dist, y, key)
    jax.tree.map(
        lambda many, single: np.testing.assert_allclose(many[1], single, rtol=1e-12), records, one
    )
    assert len(str(records).splitlines()[0].split("[")) - 1 == 5  # four columns and the note


def test_counts_are_draws_among_the_usable_rows():
    usable = jnp.array([False, True, True, False, True])
    counts = jax.vmap(draw_counts, in_axes=(0, None))(
        jax.random.split(jax.random.key(0), 1000), usable
    )
    np.testing.assert_array_equal(counts.sum(axis=1), 3)
    np.testing.assert_array_equal(counts[:, ~usable], 0)
    # Binomial(3, 1/3): mean 1 and variance 2/3, four standard errors of 1000 draws.
    np.testing.assert_allclose(counts[:, usable].mean(axis=0), 1, atol=4 * np.sqrt(2 / 3 / 1000))
    np.testing.assert_allclose(counts[:, usable].var(axis=0), 2 / 3, atol=0.12)


def test_intervals_are_those_of_resampled_data_to_the_bit_of_the_method(monkeypatch):
    """The same draws, gathered instead of weighted, through `evaluate` itself; in chunks of 2."""
    monkeypatch.setattr(bootstrap_module, "_COUNTS_IN_MEMORY", 2 * 24)
    dist, y = overconfident(24)
    keep = jnp.asarray(np.random.default_rng(3).random((24, 2)) < 0.8).at[:4].set(False)
    settings = metrics.Bootstrap(jax.random.key(7), resamples=7, confidence=0.8)
    record = metrics.evaluate(dist, y, where=keep, bootstrap=settings)
    usable = jnp.any(keep, axis=1)

    def resampled(key):
        rows = np.repeat(np.arange(24), np.asarray(draw_counts(key, usable)))
        gathered = Gaussian(dist.mean[rows], dist.log_variance[rows])
        return metrics.evaluate(gathered, y[rows], where=keep[rows])

    replicates = [resampled(key) for key in jax.random.split(settings.key, 7)]
    for name in ("rmse", "nll", "ece", "coverage", "quantile_calibration_error", "sharpness"):
        values = np.stack([getattr(r, name) for r in replicates])
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        np.testing.assert_allclose(getattr(record.lower, name), low, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(getattr(record.upper, name), high, rtol=1e-9, atol=1e-12)


def test_intervals_agree_with_scipy():
    dist, y = overconfident(200, targets=1, seed=2)
    settings = metrics.Bootstrap(jax.random.key(0), resamples=4000)
    record = metrics.evaluate(dist, y, bootstrap=settings)
    squared = np.square(np.asarray(y - dist.mean))[:, 0]
    expected = scipy.stats.bootstrap(
        (squared,),
        lambda x, axis: np.sqrt(np.mean(x, axis=axis)),
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    # Both ends carry Monte Carlo noise of about 2 % of the interval's length.
    length = expected.high - expected.low
    np.testing.assert_allclose(record.lower.rmse, expected.low, atol=0.07 * length)
    np.testing.assert_allclose(record.upper.rmse, expected.high, atol=0.07 * length)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """For z^2 of N(0, 1.2^2) the truth is 1.44; 300 data sets of 100 points, level 90 %."""
    rng = np.random.default_rng(0)
    y = jnp.asarray(1.2 * rng.normal(size=(300, 100)))

    def bounds(y, key):
        settings = metrics.Bootstrap(key, resamples=300, confidence=0.9)
        record = metrics.evaluate(
            Gaussian(jnp.zeros_like(y), jnp.zeros_like(y)), y, bootstrap=settings
        )
        return record.lower.mean_z_squared, record.upper.mean_z_squared

    lower, upper = jax.vmap(bounds)(y, jax.random.split(jax.random.key(0), 300))
    held = np.mean((lower <= 1.44) & (upper >= 1.44))
    # Percentile intervals of a skewed mean fall a little short; 4 standard errors are 0.07.
    assert 0.82 < held < 0.96


def test_no_axis_means_nothing_to_resample():
    dist, y = overconfident(3)
    record = metrics.evaluate(
        dist, y, axis=(), bootstrap=metrics.Bootstrap(jax.random.key(0), resamples=3)
    )
    assert record.lower is None
    assert record.rmse.shape == (3, 2)
