"""Leave-one-out beside refits: the steps against a dense solve, and the report."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.gaps import networks
from benchmarks.experiments.leave_one_out import refits
from benchmarks.experiments.leave_one_out.plan import RADII, Job
from benchmarks.experiments.leave_one_out.report import section
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.store import Store


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


MEANS = ("", "median_")


def test_the_report(tmp_path):
    store = Store(tmp_path)
    assert section(store) is None
    both = {"mean": 0.97, "log_variance": 0.81}
    names = [f"{m}{what}{moved}" for moved in RADII for m in MEANS for what in ("closed", "folds")]
    results = {
        "refits": {"rows": 9, "correlation": both, "slope": both},
        "folds": {name: 0.25 * i**2 for i, name in enumerate(["training", *names])},
    }
    for kind, result in results.items():
        job = Job(kind, "yacht", 0, tmp_path, tmp_path)
        store.write(job.cell, spec=job.spec, result=result, provenance={})
    text = to_markdown("", [section(store)], None)
    assert "0.970" in text
    assert "| yacht | 0.25 | 1.00 | -0.75 | 6.25 | 9.00 | -2.75 | 0.00 |" in text
    assert "| yacht | 2.25 | 4.00 | -1.75 | 12.25 | 16.00 | -3.75 |" in text
