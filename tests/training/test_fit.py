"""`fit`: plain functions, Flax NNX and Linen, several runs, validation, resuming, bad arguments."""

import os
import signal
import time

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fisher8_jax import Gaussian, doctor, fisher8_nll
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.families import MultivariateGaussian
from fisher8_jax.heads.linen import DistributionHead as LinenHead
from fisher8_jax.heads.nnx import DistributionHead as NnxHead
from fisher8_jax.training import (
    Data,
    KLRadius,
    LearningRate,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
    Plan,
    fit,
    nnx_network,
)
from fisher8_jax.training._run import train_steps

PLAN = Plan(steps=120, batch_size=16, num_validations=5)
START = {"slope": jnp.zeros((), jnp.float32), "log_variance": jnp.zeros((), jnp.float32)}
QUIET = {"show_progress": False}


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


def stack(tree, runs):
    return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], runs, 0), tree)


@pytest.fixture(scope="module")
def fitted():
    with jax.enable_x64(False):
        return fit(predict, START, make_data(), PLAN, **QUIET)


def test_a_plain_function_is_fitted(fitted):
    assert abs(float(fitted.params["slope"]) - 3) < 0.1
    assert abs(np.exp(0.5 * float(fitted.params["log_variance"])) - 0.1) < 0.03
    record = fitted.record
    assert len(record.losses) == fitted.steps == len(record.step_kl) == int(fitted.state.step)
    assert len(record.validation_losses) == len(fitted.validation_steps) == len(fitted.history)
    assert (record.smallest_log_variance <= record.largest_log_variance).all()
    assert abs(record.target_mean - make_data()[1].mean()) < 1e-6
    inputs, targets = make_data()
    diagnosis = doctor(predict(fitted.params, inputs), jnp.asarray(targets), record=record)
    assert not diagnosis, str(diagnosis)


def test_the_best_validation_is_that_of_the_rows_held_out(fitted):
    inputs, targets = make_data()
    rows = fitted.validation_rows
    nll = predict(fitted.params, inputs[rows]).nll(targets[rows]).mean()
    np.testing.assert_allclose(fitted.validation_nll, nll, rtol=1e-5)
    np.testing.assert_allclose(fitted.validation_nll, fitted.history.min(), rtol=1e-6)
    assert fitted.best_step == fitted.validation_steps[int(fitted.history.argmin())]


def test_it_equals_a_loop_by_hand():
    """All rows in each batch, so that their order does not count; SGD and an average."""
    inputs, targets = make_data(32)
    plan = Plan(steps=6, batch_size=32, validation_fraction=0, average=3.0)
    method = Method(OutputNaturalGradient(), optax.sgd(0.1))
    found = fit(predict, START, (inputs, targets), plan, method=method, **QUIET)
    params, path = START, []
    for _ in range(plan.steps):
        gradient = jax.grad(lambda p: fisher8_nll(predict(p, inputs), targets).mean())(params)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        path.append(params)
    weights = (2 / 3) ** np.arange(6)[::-1]
    mean = jax.tree.map(lambda *p: np.average(p, axis=0, weights=weights), *path)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found.params, mean)
    last = found.state.params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), last, params)


def test_one_bad_row_does_not_end_the_training():
    """A step whose gradient is not finite is left out, the next one counts."""
    inputs, targets = make_data()
    inputs = np.where(np.arange(100) == 0, np.inf, inputs).astype(np.float32)
    plan = Plan(steps=120, batch_size=16, validation_fraction=0)
    fitted = fit(predict, START, (inputs, targets), plan, **QUIET)
    losses = fitted.record.losses
    assert 10 < np.sum(~np.isfinite(losses)) < 60  # one batch of six holds the row
    assert abs(float(fitted.params["slope"]) - 3) < 0.1


def test_own_loss_and_optimizer():
    plan = Plan(steps=300, batch_size=16, validation_fraction=0, average=None)
    method = Method(LossGradient("unit_variance"), optax.adam(0.05))
    fitted = fit(predict, START, make_data(), plan, method=method, **QUIET)
    assert abs(float(fitted.params["slope"]) - 3) < 0.1
    assert float(fitted.params["log_variance"]) == 0
    assert fitted.record.step_kl is None
    assert fitted.record.validation_losses is None
    assert fitted.validation_steps == ()


def test_the_parameter_space_gradient():
    """Two parameters and a quadratic loss: a few steps of it, where Adam's have just begun."""
    plan = Plan(steps=12, batch_size=64, num_validations=3, average=None)
    natural = Method(NetworkNaturalGradient(damping=1e-3), KLRadius(1.0))
    found = fit(predict, START, make_data(), plan, method=natural, **QUIET)
    assert abs(float(found.params["slope"]) - 3) < 0.2
    adam = Method(LossGradient(), LearningRate(0.01))
    slow = fit(predict, START, make_data(), plan, method=adam, **QUIET)
    assert float(slow.params["slope"]) < 0.2


def test_runs_train_on_folds_of_their_own(fitted):
    three = fit(predict, stack(START, 3), make_data(), PLAN, runs=3, **QUIET)
    slopes = np.asarray(three.params["slope"])
    assert np.abs(slopes - 3).max() < 0.1
    assert len(np.unique(slopes)) == 3
    assert len(np.unique(three.validation_rows)) == 30
    assert three.metrics["loss"].shape == (three.steps, 3)
    assert len(three.record) == 3
    np.testing.assert_allclose(fitted.params["slope"], slopes[0], rtol=1e-4)


def test_each_run_has_numbers_of_its_own_and_programs_are_shared():
    plan = Plan(steps=20, batch_size=16, num_validations=2, average=None)
    rates = np.array([1e-5, 0.1], np.float32)
    method = Method(LossGradient(), LearningRate(rates))
    before = train_steps._cache_size()
    two = fit(predict, stack(START, 2), make_data(), plan, runs=2, method=method, **QUIET)
    slow, fast = np.asarray(two.params["slope"])
    assert slow < 0.01 < 0.5 < fast
    other = Method(LossGradient(), LearningRate(0.03))
    longer = Plan(steps=31, batch_size=16, num_validations=2, average=None)
    fit(predict, stack(START, 2), make_data(70), longer, runs=2, method=other, **QUIET)
    assert train_steps._cache_size() == before + 1


def test_validation_data_of_one_s_own():
    inputs, targets = make_data()
    own = (inputs[:30], targets[:30] + 1)
    found = fit(predict, START, (inputs, targets), PLAN, validation=own, **QUIET)
    assert found.validation_rows.size == 0
    nll = predict(found.params, own[0]).nll(own[1]).mean()
    np.testing.assert_allclose(found.validation_nll, nll, rtol=1e-5)
    both = fit(predict, stack(START, 2), (inputs, targets), PLAN, validation=own, runs=2, **QUIET)
    np.testing.assert_allclose(both.validation_nll[0], found.validation_nll, rtol=1e-5)


def test_missing_targets_are_spread_over_the_folds():
    inputs, targets = make_data()
    where = np.arange(100) >= 10
    data = Data(inputs, np.where(where, targets, np.nan), where=where)
    plan = Plan(steps=4, num_validations=1, validation_fraction=0.2)
    found = fit(predict, stack(START, 5), data, plan, runs=5, **QUIET)
    assert (np.sum(~where[found.validation_rows], axis=1) == 2).all()
    assert np.isfinite(found.validation_nll).all()


def test_a_callback_logs_and_may_stop():
    calls = []

    def callback(step, metrics, nll):
        calls.append((step, metrics["loss"], nll))
        return len(calls) == 3

    found = fit(predict, START, make_data(), PLAN, callback=callback, **QUIET)
    assert [step for step, _, _ in calls] == list(PLAN.validation_steps[:3])
    assert found.steps == calls[-1][0]
    np.testing.assert_array_equal(np.concatenate([c[1] for c in calls]), found.metrics["loss"])
    np.testing.assert_allclose([c[2] for c in calls], found.history)
    shapes = []
    fit(
        predict, stack(START, 2), make_data(), Plan(steps=3, validation_fraction=0), runs=2,
        callback=lambda step, metrics, nll: shapes.append((metrics["loss"].shape, nll.shape)),
        **QUIET,
    )  # fmt: skip
    assert shapes == [((1, 2), (2,))] * 3


def test_a_line_at_each_validation_where_there_is_no_terminal(capsys):
    plan = Plan(steps=9, num_validations=3)
    fit(predict, START, make_data(), plan)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "training: step 1/9", "training: step 4/9", "training: step 9/9"
    ]  # fmt: skip
    assert all("loss" in line and "validation NLL" in line for line in lines)
    fit(predict, START, make_data(), plan, show_progress="slopes")
    assert capsys.readouterr().err.startswith("slopes: step 1/9")
    fit(predict, START, make_data(), plan, **QUIET)
    assert capsys.readouterr().err == ""


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
    network, params, variables = nnx_network(model)
    data = (inputs[:, None], targets)
    fitted = fit(network, params, data, PLAN, variables=variables, **QUIET)
    before = np.asarray(model.norm.mean[...])
    nnx.update(model, fitted.params, fitted.variables)
    assert np.abs(np.asarray(model.norm.mean[...]) - before).max() > 1e-3
    model.eval()
    mean = model(jnp.asarray(inputs[:, None])).mean
    assert np.corrcoef(mean, targets)[0, 1] > 0.9
    again = fit(network, params, data, PLAN, variables=variables, **QUIET)
    jax.tree.map(np.testing.assert_array_equal, again.params, fitted.params)
    with pytest.raises(ValueError, match="without dropout or batch statistics"):
        fit(
            network, params, data, PLAN, variables=variables,
            method=Method(NetworkNaturalGradient()), **QUIET,
        )  # fmt: skip


def test_flax_nnx_in_the_whole_network_s_gradient():
    """A module without statistics has no variables, and its gradient is that of one example."""
    model = nnx.Sequential(
        nnx.Linear(1, 8, rngs=nnx.Rngs(0)), jnp.tanh, NnxHead(8, rngs=nnx.Rngs(1))
    )
    network, params, variables = nnx_network(model)
    inputs, targets = make_data()
    method = Method(NetworkNaturalGradient())
    found = fit(
        network, params, (inputs[:, None], targets), Plan(steps=30, num_validations=3),
        variables=variables, method=method, **QUIET,
    )  # fmt: skip
    nnx.update(model, found.params)
    assert np.corrcoef(model(inputs[:, None]).mean, targets)[0, 1] > 0.95


def test_flax_linen_and_members():
    class Net(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, inputs):
            return LinenHead()(jnp.tanh(flax.linen.Dense(8)(inputs)))

    inputs, targets = make_data()
    keys = jax.random.split(jax.random.key(0), 2)
    members = jax.vmap(lambda key: Net().init(key, inputs[:1, None]))(keys)
    fitted = fit(Net().apply, members, (inputs[:, None], targets), PLAN, runs=2, **QUIET)
    one = jax.tree.map(lambda leaf: leaf[1], fitted.params)
    assert np.corrcoef(Net().apply(one, inputs[:, None]).mean, targets)[0, 1] > 0.95


def test_joint_targets_are_masked_by_row():
    """A likelihood with an event axis, and a batch larger than the data."""

    def joint(params, inputs):
        shape = (len(inputs), 2)
        return MultivariateGaussian(
            inputs[:, None] * params[None], jnp.zeros(shape), jnp.zeros((len(inputs), 1))
        )

    inputs, targets = make_data(30)
    both = np.stack([targets, -targets], axis=1)
    plan = Plan(steps=100, num_validations=3)
    fitted = fit(joint, jnp.zeros(2), (inputs, both), plan, **QUIET)
    np.testing.assert_allclose(fitted.params, [3, -3], atol=0.3)


class KilledError(Exception):
    pass


def test_a_killed_training_ends_with_the_same_bits(tmp_path, fitted):
    steps = []

    def kill(step, metrics, nll):
        steps.append(step)
        if len(steps) == 4:
            raise KilledError

    def again(**settings):
        with TrainingCheckpoints(tmp_path / "a", every=1) as states:
            return fit(predict, START, make_data(), PLAN, checkpoints=states, **settings, **QUIET)

    with pytest.raises(KilledError):
        again(callback=kill)
    resumed = again(callback=kill)
    assert len(steps) == 6  # five validations in all, the fourth twice
    jax.tree.map(np.testing.assert_array_equal, resumed.params, fitted.params)
    np.testing.assert_array_equal(resumed.record.losses, fitted.record.losses)
    np.testing.assert_array_equal(resumed.history, fitted.history)
    done = again(callback=kill)
    assert len(steps) == 6
    jax.tree.map(np.testing.assert_array_equal, done.params, fitted.params)


@pytest.mark.parametrize("method", [3, "adam", Gaussian, optax.adam(0.1)], ids=range(4))
def test_a_method_that_is_none_is_named(method):
    with pytest.raises(TypeError, match=r"`method` must be a `Method`, got .*length=optimizer"):
        fit(predict, START, make_data(), PLAN, method=method, **QUIET)


def test_a_network_that_returns_no_distribution_is_named():
    with pytest.raises(TypeError, match=r"of `network` must be a distribution such as .* got "):
        fit(lambda params, x: x, START, make_data(), PLAN, **QUIET)


@pytest.fixture
def ctrl_c():
    """Python's own reaction to the signal, which a process started in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.filterwarnings("ignore")  # Orbax's threads may still be writing
def test_ctrl_c_leaves_the_arguments_whole_and_a_training_to_go_on_with(tmp_path, fitted):
    given, seen = jax.tree.map(jnp.copy, START), []

    def interrupt(step, metrics, nll):
        seen.append(step)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)  # until the signal comes

    with pytest.raises(KeyboardInterrupt), TrainingCheckpoints(tmp_path) as checkpoints:
        fit(predict, given, make_data(), PLAN, callback=interrupt, checkpoints=checkpoints, **QUIET)
    jax.tree.map(np.testing.assert_array_equal, given, START)
    assert {path.name for path in tmp_path.iterdir()} >= {"1", "2", "run.json"}
    with TrainingCheckpoints(tmp_path) as checkpoints:
        resumed = fit(predict, given, make_data(), PLAN, checkpoints=checkpoints, **QUIET)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, fitted.params)


def test_bad_arguments_are_named():
    inputs, targets = make_data()
    with pytest.raises(ValueError, match="`data` must have the same number of examples, got 99"):
        fit(predict, START, (inputs, targets[:99]), PLAN)
    with pytest.raises(ValueError, match=r"must not be nan, got 1 that are\. Mask missing ones"):
        fit(predict, START, (inputs, np.where(inputs == inputs[3], np.nan, targets)), PLAN)
    with pytest.raises(ValueError, match="`validation` must have the same number"):
        fit(predict, START, (inputs, targets), PLAN, validation=(inputs[:3], targets))
    with pytest.raises(ValueError, match=r"the 2 `runs` as first axis .* got shape \(\)"):
        fit(predict, START, (inputs, targets), PLAN, runs=2)
    with pytest.raises(ValueError, match="`runs` must be a positive integer"):
        fit(predict, START, (inputs, targets), PLAN, runs=0)


@pytest.mark.parametrize(
    ("gradient", "is_named"), [(OutputNaturalGradient(), True), (LossGradient("nll"), False)]
)
def test_the_record_lets_the_doctor_name_micro_batches(gradient, is_named):
    """Only where they are normalised: those of a plain loss may be averaged."""
    steps = optax.MultiSteps(optax.adam(0.1), 2)
    length = optax.GradientTransformation(steps.init, steps.update)
    fitted = fit(
        predict, START, make_data(), Plan(steps=8), method=Method(gradient, length), **QUIET
    )
    inputs, targets = make_data()
    found = doctor(predict(fitted.params, inputs), jnp.asarray(targets), record=fitted.record)
    assert ("micro_batches_normalised" in found.codes) == is_named
