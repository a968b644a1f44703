"""`fit` for plain functions, Flax NNX and Linen; resuming; what a user may do wrong."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fisher8_jax import Gaussian, doctor
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.families import MultivariateGaussian
from fisher8_jax.heads.linen import DistributionHead as LinenHead
from fisher8_jax.heads.nnx import DistributionHead as NnxHead
from fisher8_jax.training import Data, Plan, fit, fit_lanes, fit_network, nnx_network, plain_network

PLAN = Plan(steps=120, batch_size=16, looks=5)
START = {"slope": jnp.zeros((), jnp.float32), "log_variance": jnp.zeros((), jnp.float32)}


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False):
        yield


def make_data(rows=100):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, rows).astype(np.float32)
    return inputs, 3 * inputs + 0.1 * rng.normal(size=rows).astype(np.float32)


def predict(params, inputs):
    log_variance = jnp.broadcast_to(params["log_variance"], inputs.shape)
    return Gaussian(params["slope"] * inputs, log_variance)


def test_a_plain_function_is_fitted():
    fitted = fit(predict, START, make_data(), PLAN)
    assert abs(float(fitted.params["slope"]) - 3) < 0.1
    assert abs(np.exp(0.5 * float(fitted.params["log_variance"])) - 0.1) < 0.03
    record = fitted.record
    assert len(record.losses) == fitted.trained.steps == len(record.step_kl)
    assert len(record.validation_losses) == len(fitted.trained.look_steps)
    assert (record.smallest_log_variance <= record.largest_log_variance).all()
    assert abs(record.target_mean - make_data()[1].mean()) < 1e-6
    inputs, targets = make_data()
    diagnosis = doctor(predict(fitted.params, inputs), jnp.asarray(targets), record=record)
    assert not diagnosis, str(diagnosis)


def test_one_bad_row_does_not_end_the_training():
    """The recipe's guard: a step whose gradient is not finite is left out, the next one counts."""
    inputs, targets = make_data()
    inputs = np.where(np.arange(100) == 0, np.inf, inputs).astype(np.float32)
    fitted = fit(predict, START, (inputs, targets), Plan(steps=120, batch_size=16, held_out=0))
    losses = fitted.record.losses
    assert 10 < np.sum(~np.isfinite(losses)) < 60  # one batch of six holds the row
    assert abs(float(fitted.params["slope"]) - 3) < 0.1


def test_own_loss_and_optimizer():
    optimizer = optax.adam(0.05)
    plan = Plan(steps=300, batch_size=16, held_out=0, average=None)
    fitted = fit(predict, START, make_data(), plan, loss="unit_variance", optimizer=optimizer)
    assert abs(float(fitted.params["slope"]) - 3) < 0.1
    assert float(fitted.params["log_variance"]) == 0
    assert fitted.record.step_kl is None
    assert fitted.record.validation_losses is None


def test_lanes_train_on_folds_of_their_own():
    inputs, targets = make_data()
    network = plain_network(predict)
    params = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], 3, 0), START)
    three = fit_lanes(network, params, None, (inputs, targets), PLAN)
    slopes = np.asarray(three.params["slope"])
    assert np.abs(slopes - 3).max() < 0.1
    assert len(np.unique(slopes)) == 3
    alone = fit(predict, START, (inputs, targets), PLAN)
    np.testing.assert_allclose(alone.params["slope"], slopes[0], rtol=1e-4)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(1, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.head = NnxHead(8, rngs=rngs)

    def __call__(self, inputs):
        return self.head(self.dropout(jnp.tanh(self.norm(self.hidden(inputs)))))


def test_flax_nnx_with_dropout_and_batch_norm():
    inputs, targets = make_data()
    model = Network(nnx.Rngs(0))
    network = nnx_network(model)
    fitted = fit_network(*network, (inputs[:, None], targets), PLAN)
    before = np.asarray(model.norm.mean[...])
    nnx.update(model, fitted.params, fitted.variables)
    assert np.abs(np.asarray(model.norm.mean[...]) - before).max() > 1e-3
    model.eval()
    mean = model(jnp.asarray(inputs[:, None])).mean
    assert np.corrcoef(mean, targets)[0, 1] > 0.9
    again = fit_network(*network, (inputs[:, None], targets), PLAN)
    jax.tree.map(np.testing.assert_array_equal, again.params, fitted.params)


def test_flax_linen():
    class Net(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, inputs):
            return LinenHead()(jnp.tanh(flax.linen.Dense(8)(inputs)))

    inputs, targets = make_data()
    params = Net().init(jax.random.key(0), inputs[:1, None])
    fitted = fit(Net().apply, params, (inputs[:, None], targets), PLAN)
    mean = Net().apply(fitted.params, inputs[:, None]).mean
    assert np.corrcoef(mean, targets)[0, 1] > 0.95


def test_joint_targets_are_masked_by_row():
    """A likelihood with an event axis, and a batch larger than the data."""

    def joint(params, inputs):
        shape = (len(inputs), 2)
        return MultivariateGaussian(
            inputs[:, None] * params[None], jnp.zeros(shape), jnp.zeros((len(inputs), 1))
        )

    inputs, targets = make_data(30)
    both = np.stack([targets, -targets], axis=1)
    fitted = fit(joint, jnp.zeros(2), (inputs, both), Plan(steps=100, looks=3))
    np.testing.assert_allclose(fitted.params, [3, -3], atol=0.3)


class KilledError(Exception):
    pass


def test_a_killed_training_ends_with_the_same_bits(tmp_path, monkeypatch):
    whole = fit(predict, START, make_data(), PLAN)
    from fisher8_jax.training import _runner

    looks = []

    def kill(*arguments):
        looks.append(1)
        if len(looks) == 4:
            raise KilledError
        return take_look(*arguments)

    take_look = _runner.take_look
    monkeypatch.setattr(_runner, "take_look", kill)
    with pytest.raises(KilledError), TrainingCheckpoints(tmp_path / "a", every=1) as checkpoints:
        fit(predict, START, make_data(), PLAN, checkpoints=checkpoints)
    with TrainingCheckpoints(tmp_path / "a", every=1) as checkpoints:
        resumed = fit(predict, START, make_data(), PLAN, checkpoints=checkpoints)
    assert len(looks) == 6  # five looks in all, the fourth twice
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.record.losses, whole.record.losses)
    np.testing.assert_array_equal(resumed.record.validation_losses, whole.record.validation_losses)


def test_bad_arguments_are_named():
    inputs, targets = make_data()
    with pytest.raises(ValueError, match="same number of examples, got 99, 100"):
        fit(predict, START, (inputs, targets[:99]), PLAN)
    with pytest.raises(ValueError, match=r"must not be nan, got 1 that are\. Mask missing ones"):
        fit(predict, START, (inputs, np.where(inputs == inputs[3], np.nan, targets)), PLAN)
    with pytest.raises(ValueError, match="trustable"):
        fit(predict, START, Data(inputs, targets), PLAN, loss="trustabel")
