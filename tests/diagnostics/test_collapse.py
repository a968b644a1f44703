"""Networks that stop looking at their input, seen by functions, by the record and by the doctor."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.experiments.collapse.jobs import constant_share
from fisher8_jax import Gaussian, fisher8
from fisher8_jax.diagnostics import (
    TrainingRecord,
    doctor,
)
from tests.diagnostics import relu_trainings
from tests.diagnostics.relu_trainings import Setup

HEALTHY, TOO_LONG = Setup(0.003), Setup(0.3, decay=0.0)


@pytest.fixture(scope="module")
def runs():
    healthy, too_long = relu_trainings.train_all([HEALTHY, TOO_LONG])
    return {"healthy": healthy, "too long": too_long}


def test_too_long_steps_kill_a_relu_network_and_the_doctor_says_so(runs):
    dist, targets, record = runs["too long"]
    assert record.dead_share["the second layer"] == 1.0
    assert record.constant_share[0] < 0.5 < record.constant_share[-1] == 1.0
    diagnosis = doctor(dist, targets, record=record)
    assert diagnosis.codes[0] == "collapsed"
    finding = diagnosis.findings[0]
    assert finding.figures["dead_share_the second layer"] == 1.0
    assert finding.figures["first_step"] == np.argmax(record.constant_share > 0.5)
    assert "dead_units" in diagnosis.codes
    # It used to advise a larger learning rate here.
    assert not {"mean_uninformative", "learning_rate_too_low"} & set(diagnosis.codes)
    assert "smaller learning rate" in finding.advice
    assert doctor(dist, targets).codes[0] == "collapsed"  # seen without a record, too


def test_shorter_steps_cure_the_collapse(runs):
    (ill, targets, _), (well, _, record) = runs["too long"], runs["healthy"]
    assert well.nll(targets).mean() < ill.nll(targets).mean() - 0.3
    assert not doctor(well, targets, record=record)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_constant_share_counts_the_rows_that_do_not_move(dtype):
    x = jnp.linspace(-1, 1, 20, dtype=dtype)

    def predict(x):
        return Gaussian(jax.nn.relu(x - 0.5), jnp.zeros_like(x))

    share = jax.jit(lambda x: constant_share(predict, x))(x)
    assert float(share) == pytest.approx(float(np.mean(np.asarray(x, np.float64) <= 0.5)))
    assert constant_share(lambda x: Gaussian(jnp.zeros_like(x), x), x) == 0  # only the variance


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`dead_share` must hold shares from 0 to 1, got 3"):
        TrainingRecord(dead_share={"hidden": 3})


def test_noise_walk_is_named_and_its_cures_work():
    """Fisher8 gradients have unit length: under a constant rate the steps never get shorter."""
    key_x, key_y, key_rows = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(key_x, (1024, 3))
    y = x[:, 0] + jax.random.normal(key_y, (1024,))
    train_x, train_y, test_x, test_y = x[:512], y[:512], x[512:], y[512:]

    def predict(params, x):
        return Gaussian(x @ params["mean"], jnp.full(x.shape[0], params["log_variance"]))

    def train(schedule, batch=16, average=False):
        optimizer = optax.sgd(schedule)
        params = {"mean": jnp.zeros(3), "log_variance": jnp.zeros(())}

        def step(carry, rows):
            params, state = carry
            x, y = train_x[rows], train_y[rows]
            gradient = jax.grad(lambda p: fisher8(predict(p, x)).nll(y).mean())(params)
            # The size of the gradient grows with the root of the batch.
            gradient = jax.tree.map(lambda g: g * (16 / batch) ** 0.5, gradient)
            updates, state = optimizer.update(gradient, state)
            new = optax.apply_updates(params, updates)
            before = predict(params, x)
            notes = before.nll(y).mean(), before.kl(predict(new, x)).mean()
            return (new, state), (*notes, new)

        rows = jax.random.randint(key_rows, (200, batch), 0, 512)
        (params, _), (*notes, way) = jax.lax.scan(step, (params, optimizer.init(params)), rows)
        if average:
            params = jax.tree.map(lambda leaf: leaf[100:].mean(axis=0), way)
        return predict(params, test_x), *notes

    runs = {
        "walk": {"schedule": 0.2},
        "decay": {"schedule": optax.linear_schedule(0.2, 0.0, 200)},
        "average": {"schedule": 0.2, "average": True},
        "larger batches": {"schedule": 0.2, "batch": 512},
    }
    found, scores = {}, {}
    for name, settings in runs.items():
        dist, losses, step_kl = jax.jit(lambda settings=settings: train(**settings))()
        record = TrainingRecord(losses=losses, step_kl=step_kl, target_mean=0.0, target_std=1.4)
        found[name] = doctor(dist, test_y, record=record)
        scores[name] = float(dist.nll(test_y).mean())
    assert "noise_walk" in found["walk"].codes, str(found["walk"])
    advice = next(f for f in found["walk"].findings if f.code == "noise_walk").advice
    for word in ("decay to zero", "average", "larger batches"):
        assert word in advice
    assert not found["decay"], str(found["decay"])
    for cure in ("decay", "average", "larger batches"):
        assert scores[cure] < scores["walk"] - 0.02, scores
