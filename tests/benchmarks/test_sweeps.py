"""Sweeps of published methods: settings, held-out rows, post-hoc variances, what is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.experiments.sweeps import jobs, report
from benchmarks.experiments.sweeps.plan import GAMMAS, METHODS, SETS, Job
from benchmarks.experiments.uci.jobs import Prepared
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.loop import Datasets
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.posthoc import PostHoc, fit_log_variance
from benchmarks.machinery.store import Store

RNG = np.random.default_rng(5)


def test_the_log_variance_has_the_highest_posterior_density():
    features = 3 * RNG.normal(size=(40, 6)) + 2
    residuals = np.exp(0.3 * features[:, 0]) * RNG.normal(size=40)
    where = np.arange(40) < 33
    found = fit_log_variance(jnp.asarray(features), jnp.asarray(residuals), jnp.asarray(where))
    used = features[where]
    columns = (used - used.mean(0)) / used.std(0)

    def density(solution):
        logs = columns @ solution[:6] + solution[6]
        values = 0.5 * logs + 0.5 * residuals[where] ** 2 * np.exp(-logs)
        return values.sum() + 0.5 * 6 * np.sum(solution[:6] ** 2)

    expected = minimize(density, np.zeros(7), tol=1e-12).x
    np.testing.assert_allclose(jnp.append(found.weights, found.offset), expected, atol=2e-5)
    logs = found(jnp.asarray(features))
    np.testing.assert_allclose(logs[where], columns @ expected[:6] + expected[6], atol=1e-4)


@pytest.mark.parametrize("rows", [1, 3, 200])
def test_the_fit_survives_few_rows_dead_units_and_far_residuals(rows):
    features = jnp.asarray(RNG.normal(size=(rows, 50))).at[:, 7].set(0.0)
    residuals = jnp.asarray(RNG.standard_t(1, size=rows))
    found = jax.jit(fit_log_variance)(features, residuals, jnp.ones(rows, bool))
    assert all(np.isfinite(leaf).all() for leaf in found)


def test_post_hoc_variances_leave_the_mean_and_average_over_layers():
    network = Mlp((8, 5), jax.nn.elu, outputs=1)
    params = network.init(np.random.default_rng(0), 3)
    inputs = jnp.asarray(RNG.normal(size=(30, 3)))
    (mean,), _ = network.forward(params, None, inputs)
    targets, where = mean + jnp.asarray(RNG.normal(size=30)), jnp.ones(30, bool)
    of_layer = {}
    for layers in ((0,), (1,), (0, 1)):
        model = PostHoc(network, layers)
        fitted = model.fit(params, inputs, targets, where)
        of_layer[layers], _ = model((params, fitted), None, inputs)
        np.testing.assert_allclose(of_layer[layers].mean, mean, rtol=1e-6)
    both = 0.5 * (of_layer[0,].variance + of_layer[1,].variance)
    np.testing.assert_allclose(of_layer[0, 1].variance, both, rtol=1e-6)


def test_a_temperature_adds_its_variance():
    cold, warm = (HEADS[f"latent{name}"].apply for name in ("", "_0.3"))
    arguments = tuple(jnp.asarray(RNG.normal(size=(3, 9))))
    np.testing.assert_allclose(warm(*arguments).variance, cold(*arguments).variance + 0.09)


def test_the_corridor_has_one_parameter():
    for baseline in METHODS["wong_toi"][1].values():
        settings = dict(baseline.hyperparameters)
        assert settings["rho"] == 1 - settings["gamma"]
    assert len(METHODS["wong_toi"][1]) == len(GAMMAS)


def make_job(tmp_path, method="nll", dataset="yacht"):
    return Job(method, dataset, 0, tmp_path / f"{dataset}.npz", tmp_path)


@pytest.fixture
def prepared(monkeypatch):
    """Two splits of 50 rows, padded to 64; a network trains for 8 steps."""
    monkeypatch.setattr(jobs, "ROWS", 64)
    monkeypatch.setattr(jobs, "STEPS", 8)
    monkeypatch.setattr("benchmarks.experiments.uci.jobs.SPLITS", 2)
    inputs = RNG.normal(size=(2, 64, 16)).astype(np.float32)
    targets = (inputs[..., 0] + 0.1 * RNG.normal(size=(2, 64))).astype(np.float32)
    data = Datasets(jnp.asarray(inputs), jnp.asarray(targets))
    mask, one = jnp.ones((2, 64), bool), jnp.ones(2)
    return Prepared(16, (50, 50), data, data.inputs, data.targets, mask, 0 * one, one)


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize(("method", "name"), [("trustable", None), ("posthoc", "both layers")])
def test_a_setting_has_scores_for_every_split_and_rate(method, name, prepared, tmp_path):
    job = make_job(tmp_path, method)
    name = name or next(iter(job.settings))
    found = jobs.sweep_setting(job, prepared, job.settings[name], jobs.LAYERS.get(name))
    assert set(found) == {"rmse", "nll", "ece", "non_finite", "held_out_nll"}
    assert np.shape(found["nll"]) == (2, len(job.rates))
    assert np.isfinite(found["held_out_nll"]).all()


def test_rows_to_train_on_and_held_out_are_apart(prepared, tmp_path):
    kept, held = jobs.split_rows(make_job(tmp_path), prepared)
    for rows, mask in zip(kept, held, strict=True):
        assert sorted([*rows, *np.flatnonzero(mask)]) == list(range(50))
        assert mask.sum() == 10
    other, _ = jobs.split_rows(make_job(tmp_path, "collier"), prepared)
    np.testing.assert_array_equal(kept[0], other[0])


def test_held_out_rows_choose_and_test_rows_report(tmp_path):
    # Two settings, two splits, two rates; a rate that diverged is never chosen.
    result = {
        "held_out_nll": [[[1.0, None], [2.0, 0.5]], [[0.0, 3.0], [4.0, 4.0]]],
        "nll": [[[10.0, None], [20.0, 21.0]], [[30.0, 31.0], [40.0, 41.0]]],
        "rmse": [[[1.0, None], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]],
        "ece": [[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]],
    }
    assert report.choose(result)["nll"].tolist() == [30.0, 21.0]
    assert report.choose(result, 0)["nll"].tolist() == [10.0, 21.0]
    assert report.section(Store(tmp_path)) is None
    job = make_job(tmp_path, "beta_nll")
    Store(tmp_path).write(job.cell, spec=job.spec, result=result, provenance={})
    text = to_markdown("", [report.section(Store(tmp_path))], None)
    assert "| beta-NLL | 2 | **25.50 ± 4.50** | not run" in text
    assert "| beta 0.5 | 15.50 / 2.00 (1) | not run" in text
    assert "diverged" not in text


def test_jobs_name_their_cells_and_commands(tmp_path):
    job = make_job(tmp_path, "wong_toi", SETS[1])
    assert job.cell == "sweeps/boston-wong_toi"
    assert job.command == "python -m benchmarks sweeps --methods wong_toi --datasets boston"
    assert job.spec["settings"][0] == "gamma 0.001"
