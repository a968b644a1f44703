"""Leave-one-out beside refits: the steps against a dense solve, and the report."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.gaps import networks
from benchmarks.experiments.leave_one_out import jobs, refits
from benchmarks.experiments.leave_one_out.plan import Job
from benchmarks.experiments.leave_one_out.report import section
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.store import Store
from fisher8_jax.posterior import Prior


def test_steps_are_those_of_the_dense_matrix(monkeypatch):
    monkeypatch.setattr(networks, "HIDDEN", 3)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(5, 2)), random.normal(size=5)
    params = {name: np.float64(leaf) for name, leaf in networks.init(0, 2).items()}
    precision = refits.precisions(params, {name: 2.0 + len(name) for name in params})
    fit = refits.Fit(jnp.asarray(x), jnp.asarray(y), jnp.asarray(precision), params)
    vector, counts = ravel_pytree(params)[0], np.array([1.0, 1, 0, 1, 1])
    found = refits._candidates(fit, vector, counts)
    jacobian = jax.jacrev(fit.outputs)(vector)
    log_variance = fit.outputs(vector)[:, 1]
    fisher = np.stack([np.exp(-log_variance), np.full(5, 0.5)], 1) * counts[:, None]
    curvature = np.einsum("iap,ia,iaq->pq", jacobian, fisher, jacobian)
    gradient = jax.grad(fit.loss)(vector, counts)
    for damping, one in zip(refits.DAMPINGS, found, strict=True):
        matrix = curvature + np.diag(precision + damping)
        np.testing.assert_allclose(one, vector - np.linalg.solve(matrix, gradient), atol=1e-10)
    lower, gain = refits.minimize(fit, vector, counts, 2)
    assert fit.loss(lower, counts) < fit.loss(vector, counts)
    assert gain > 0


def test_the_report(tmp_path):
    store = Store(tmp_path)
    assert section(store) is None
    both = {"mean": 0.97, "log_variance": 0.81}
    names = [m + what for m in ("", "median_") for what in ("closed", "damped", "folds")]
    names += ["training", "median_training", "error", "damped_in_folds"]
    results = {
        "refits": {"rows": 9, "correlation": both, "slope": both},
        "folds": {name: 0.25 * i**2 for i, name in enumerate(names)},
    }
    for kind, result in results.items():
        job = Job(kind, "yacht", 0, tmp_path, tmp_path)
        store.write(job.cell, spec=job.spec, result=result, provenance={})
    text = to_markdown("", [section(store)], None)
    assert "0.970" in text
    assert "| yacht | 0.00 | 0.25 | 1.00 | -0.75 | 9.00 | 16.00 | 20.25 |" in text
    assert "| yacht | 2.25 | 4.00 | 6.25 | -2.25 | 12.25 |" in text


def test_all_rows_are_left_out_once(monkeypatch):
    """Networks that know the truth: folds, closed form and training rows have the same NLL."""
    random = np.random.default_rng(0)
    rows = networks.Rows(random.normal(size=(20, 2)), random.normal(size=20))
    monkeypatch.setattr(networks, "HIDDEN", 3)
    monkeypatch.setattr(jobs, "FOLDS", 2)
    params = jax.tree.map(np.zeros_like, networks.init(0, 2))
    seen = []

    def trained(some, seed):
        seen.append(len(some.targets))
        return params, Prior(dict.fromkeys(params, 1e12))

    monkeypatch.setattr(jobs, "trained", trained)
    found = jobs.cross_validate(rows, 0)
    expected = np.mean(0.5 * (rows.targets**2 + np.log(2 * np.pi)))
    assert seen == [20, 10, 10]
    for name in ("closed", "damped", "folds", "training"):
        assert abs(found[name] - expected) < 1e-5
    assert found["error"] < 1e-5
