"""Empirical Bayes on rotated digits: when the precisions move, where to, and what they do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experiments.rotated_mnist import evidence, jobs
from benchmarks.experiments.rotated_mnist.data import Problem, Rotated
from benchmarks.experiments.rotated_mnist.networks import EvidenceSetup
from benchmarks.experiments.rotated_mnist.plan import SETTINGS, Job
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.step import Run
from benchmarks.machinery.store import Store
from fisher8_jax import Gaussian
from fisher8_jax.posterior import batch_evidence

ROWS = 24
NETWORK = Mlp((4,), jax.nn.relu)
RNG = np.random.default_rng(3)
INPUTS = RNG.uniform(size=(ROWS, 5)).astype(np.float32)
TARGETS = (INPUTS[:, 0] - 0.5 + 0.1 * RNG.normal(size=ROWS)).astype(np.float32)


def test_updates_are_those_of_500_epochs_shortened_alike():
    assert evidence.update_epochs(500) == list(range(50, 501, 25))
    assert evidence.update_epochs(100) == list(range(10, 101, 5))
    assert evidence.update_epochs(5)[-1] == 5


def log_evidence(params, log_precision, inputs=INPUTS, targets=TARGETS):
    """Of all rows by a dense Jacobian: an independent route."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: jnp.asarray(x, float), params))
    sizes = [leaf.size for leaf in leaves]

    def natural(flat):
        parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        shaped = [flat[p].reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
        first, raw = NETWORK.forward(jax.tree.unflatten(structure, shaped), None, inputs)[0]
        precision = jax.nn.softplus(raw) + 1e-8
        return first, -0.5 * precision

    flat = jnp.concatenate([leaf.ravel() for leaf in leaves])
    first, second = natural(flat)
    of_first, of_second = jax.jacobian(natural)(flat)
    variance, mean = -0.5 / second, -0.5 * first / second
    # The Fisher information of the natural parameters is the covariance of (y, y^2).
    rows = jnp.stack([of_first, of_second], 1)
    fisher = jnp.stack(
        [
            jnp.stack([variance, 2 * mean * variance], -1),
            jnp.stack([2 * mean * variance, 4 * mean**2 * variance + 2 * variance**2], -1),
        ],
        -1,
    )
    curvature = jnp.einsum("iap,iab,ibq->pq", rows, fisher, rows)
    prior = jnp.repeat(jnp.exp(log_precision), jnp.array(sizes), total_repeat_length=sum(sizes))
    posterior = curvature + jnp.diag(prior)
    nll = 0.5 * jnp.log(2 * jnp.pi * variance) + (targets - mean) ** 2 / (2 * variance)
    logs = jnp.linalg.slogdet(posterior)[1] - jnp.sum(jnp.log(prior))
    return -nll.sum() - 0.5 * (logs + jnp.sum(prior * flat**2))


def test_the_evidence_is_that_of_a_dense_matrix():
    params = NETWORK.init(np.random.default_rng(0), 5)
    log_precision = jnp.array([0.3, -0.4, 1.0, 0.0])

    def predict_one(params, x):
        return Gaussian.from_natural(*NETWORK.forward(params, None, x)[0])

    wide = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    inputs, targets = jnp.asarray(INPUTS, float), jnp.asarray(TARGETS, float)
    found = batch_evidence(predict_one, wide, inputs, targets, log_precision)
    np.testing.assert_allclose(found.log_evidence, log_evidence(params, log_precision), rtol=1e-9)


def test_an_update_climbs_and_keeps_the_best_weights(monkeypatch):
    monkeypatch.setitem(evidence._CLIMB, "adam_steps", 20)
    params = NETWORK.init(np.random.default_rng(0), 5)
    kept = evidence.start_evidences(params, 10)
    data = (INPUTS, TARGETS)
    # With blocks of all rows the bound is the evidence itself.
    moved = evidence.update_evidences(kept, NETWORK, params, data, 0, 0)
    before, after = (log_evidence(params, jnp.asarray(e.log_precision)) for e in (kept, moved))
    assert after > before + 0.5
    assert moved.per_row[0] == pytest.approx(float(after) / ROWS, rel=1e-5)
    np.testing.assert_allclose(moved.precisions[0], np.exp(moved.log_precision), rtol=1e-6)
    worse = jax.tree.map(lambda leaf: leaf + 3, params)
    again = evidence.update_evidences(moved, NETWORK, worse, data, 0, 1)
    assert again.best == 0
    assert again.params is moved.params
    assert np.isfinite(again.per_row[1])


def test_every_array_decays_by_its_own_precision():
    params = NETWORK.init(np.random.default_rng(0), 5)
    setup = EvidenceSetup(NETWORK, SETTINGS["natural_evidence"].method, None, ROWS)
    log_precision = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    rows = np.arange(ROWS)[None, None]
    schedule = Schedule(rows, np.array([True]), np.ones(1, np.float32))
    data = Datasets(jnp.asarray(INPUTS)[None], jnp.asarray(TARGETS)[None])

    def after_one_step(log_precision):
        settings = (jnp.array([0.1], jnp.float32), jnp.asarray(log_precision)[None])
        run = Run(settings, jax.random.key(0)[None], jnp.zeros(1, jnp.int32))
        state = start(setup.task, stack_members([params]), None, run, data)
        return jax.tree.leaves(train(setup.task, state, data, run, schedule)[0].params)

    free = after_one_step(np.full(4, -40.0, np.float32))
    held = after_one_step(log_precision)
    for one, other, leaf, log in zip(
        free, held, jax.tree.leaves(params), log_precision, strict=True
    ):
        np.testing.assert_allclose(one - other, 0.1 * np.exp(log) / ROWS * leaf[None], atol=1e-6)


@pytest.mark.usefixtures("float32")
def test_a_training_stores_its_precisions_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setitem(evidence._CLIMB, "adam_steps", 2)
    monkeypatch.setitem(evidence._CLIMB, "block", 8)
    monkeypatch.setattr(evidence, "FULL_EPOCHS", 100)  # updates after epochs 2, 3 and 4 of 4
    labels = np.arange(ROWS) % 3
    part = Rotated(INPUTS, TARGETS, TARGETS, labels)
    problem = Problem("tiny", part, part, 1.0)
    fields = {"images": "digits", "regime": "independent", "method": "natural_evidence", "seed": 1}
    job = Job(
        **fields, epochs=4, learning_rate=0.01, schedule="cosine", prior=1.0, data=None,
        results=tmp_path / "results", scratch=tmp_path / "scratch",
    )  # fmt: skip
    setup = jobs.make_setup("natural_evidence", prior=1.0, rows=ROWS, epochs=4)
    setup = EvidenceSetup(NETWORK, setup.method, setup.optimizer, ROWS)
    monkeypatch.setattr(jobs, "make_setup", lambda *args, **kwargs: setup)
    monkeypatch.setattr(jobs, "load_problem", lambda *args: problem)
    jobs.run_job(job, lambda amount: None)
    result = Store(tmp_path / "results").read(job.cell, job.spec)
    updates = evidence.update_epochs(4)
    stored = result["history"]["evidences"]
    assert len(updates) == len(stored["evidence_per_row"]) == len(stored["precisions"]) == 3
    assert None not in stored["evidence_per_row"]

    def interrupt(amount, calls=[]):  # noqa: B006
        calls.append(amount)
        if len(calls) == 4:
            raise KeyboardInterrupt

    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        jobs.fit(job, setup, problem, None, folder, interrupt)
    params, history = jobs.fit(job, setup, problem, None, folder, lambda amount: None)
    assert history.evidences.per_row.tolist() == stored["evidence_per_row"]
    assert jobs.evaluate(job, setup, params, problem)[0] == result["rmse"]
