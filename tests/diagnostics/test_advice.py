"""Every advice of the doctor is followed somewhere, and what is followed improves the model."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fisher8_jax.diagnostics
from fisher8_jax import (
    Gaussian,
    families,
    fisher8,
    fisher8_nll,
    microbatched_value_and_grad,
)
from fisher8_jax.calibration import IsotonicPIT
from fisher8_jax.diagnostics import TrainingRecord, doctor, top_gradient_share
from tests.diagnostics import test_collapse, test_doctor, test_doctor_families, test_mistakes
from tests.diagnostics.trainings import Setup

HERE = {
    "no_data": "test_rows_to_judge",
    "non_finite_targets": "test_missing_targets_that_are_masked",
    "mean_uninformative": "test_rows_that_belong_together",
    "points_starved": "test_fisher8_feeds_starved_points",
    "heavy_tails": "test_recalibration_of_heavy_tails",
    "micro_batches_normalised": "test_micro_batches_that_share_the_norms_of_the_batch",
}
ELSEWHERE = {
    "fields_mixed_up": (test_mistakes, "test_a_field_that_was_taken_for_another"),
    "placeholder_targets": (test_mistakes, "test_placeholders_of_missing_targets"),
    "mean_misses_input": (test_mistakes, "test_a_line_through_a_curve"),
    "input_scale_off": (test_mistakes, "test_inputs_that_were_not_scaled"),
    "wrong_shape": (test_mistakes, "test_errors_of_another_shape"),
    "overdispersed": (
        test_doctor_families,
        "test_overdispersed_counts_name_the_negative_binomial",
    ),
    "heavy_tails": (
        test_doctor_families,
        "test_heavy_tails_name_the_student_t_and_it_helps",
    ),
    "overconfident": (test_doctor_families, "test_the_factor_on_the_spread_helps"),
    "variance_inflated": (test_doctor_families, "test_the_factor_on_the_spread_helps"),
    "variance_misplaced": (
        test_doctor_families,
        "test_a_scale_that_is_learnt_again_cures_a_misplaced_variance",
    ),
    "variance_constant": (
        test_doctor_families,
        "test_a_variance_that_follows_the_input_cures_a_constant_one",
    ),
    "mean_off": (test_doctor_families, "test_units_that_are_undone_as_advised"),
    "mean_worse_than_unit_variance": (test_doctor, "test_fisher8_frees_the_mean"),
    "collapsed": (test_collapse, "test_shorter_steps_cure_the_collapse"),
    "dead_units": (test_collapse, "test_shorter_steps_cure_the_collapse"),
    "noise_walk": (test_collapse, "test_noise_walk_is_named_and_its_cures_work"),
}
TRAINED = {code for name, (_, code) in test_doctor.FAULTY.items() if name in test_doctor.CURED}


def test_every_code_has_a_test_that_follows_its_advice():
    folder = pathlib.Path(fisher8_jax.diagnostics.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    examples = {"unsure"}  # of a docstring
    codes = set(re.findall(r'Finding\(\s*"(\w+)"', text)) - examples
    assert codes == set(HERE) | set(ELSEWHERE) | TRAINED
    assert set(HERE.values()) <= set(globals())
    for module, name in ELSEWHERE.values():
        assert name in vars(module)


def advice_of(diagnosis, code):
    return next(finding.advice for finding in diagnosis.findings if finding.code == code)


def test_rows_to_judge():
    mean, noise = np.random.default_rng(0).normal(size=(2, 300))
    dist, targets = Gaussian(jnp.asarray(mean), jnp.zeros(300)), jnp.asarray(mean + noise)
    where = jnp.zeros(300, bool)
    assert "True for those with a target" in advice_of(
        doctor(dist, targets, where=where), "no_data"
    )
    assert not doctor(dist, targets, where=~where)


def test_rows_that_belong_together():
    """A loader that shuffles the inputs and forgets the targets."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 1200))
    y = x + 0.5 * noise
    slope = np.sum(x[:600] * y[:600]) / np.sum(x[:600] ** 2)
    log_variance = jnp.full(600, np.log(np.var(y[:600] - slope * x[:600])))
    test_x, test_y = x[600:], jnp.asarray(y[600:])
    shuffled = Gaussian(jnp.asarray(slope * rng.permutation(test_x)), log_variance)
    assert "row by row" in advice_of(doctor(shuffled, test_y), "mean_uninformative")
    together = Gaussian(jnp.asarray(slope * test_x), log_variance)
    assert together.nll(test_y).mean() < shuffled.nll(test_y).mean() - 0.5
    assert not doctor(together, test_y)


def test_missing_targets_that_are_masked():
    rng = np.random.default_rng(0)
    x, noise = jnp.asarray(rng.normal(size=(2, 400)))
    y = jnp.where(jnp.arange(400) % 10 == 0, jnp.nan, x + noise)

    def predict(params):
        return Gaussian(params["slope"] * x, jnp.full(400, params["log_variance"]))

    def train(where):
        params = {"slope": jnp.zeros(()), "log_variance": jnp.ones(())}
        loss = jax.grad(lambda p: fisher8_nll(predict(p), y, where=where).sum())
        params = jax.lax.fori_loop(
            0, 60, lambda _, p: jax.tree.map(lambda a, g: a - 0.03 * g / 20, p, loss(p)), params
        )
        return predict(params)

    unmasked = train(jnp.ones(400, bool))
    diagnosis = doctor(unmasked, y)
    assert diagnosis.codes[0] == "non_finite_targets"
    assert "where=jnp.isfinite(targets)" in diagnosis.findings[0].advice
    seen = jnp.isfinite(y)
    masked = train(seen)
    assert not bool(jnp.isfinite(unmasked.mean).all())
    assert bool(jnp.isfinite(masked.mean).all())
    assert masked.nll(jnp.where(seen, y, 0))[seen].mean() < 1.6
    assert not {"non_finite_targets", "non_finite_predictions"} & set(
        doctor(masked, y, where=seen).codes
    )


def train_beside_exact_rows(*, corrected):
    """One row in a hundred is measured a thousand times better, and known to be; Adam's equal."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(2, 1000, 3)))
    exact = jnp.arange(1000) % 100 == 0
    std = jnp.where(exact, 1e-3, 0.3)
    truth = jnp.sin(2 * inputs[..., 0]) + 0.5 * inputs[..., 1]
    targets = truth + std[None] * jnp.asarray(rng.normal(size=(2, 1000)))

    def predict(params, x):
        mean = jnp.tanh(x @ params["hidden"] + params["bias"][None]) @ params["mean"]
        levels = jnp.where(exact, params["log_variance"][0] - 11.5, params["log_variance"][1] - 2.4)
        return Gaussian(mean, levels)

    params = {
        "hidden": jnp.asarray(rng.normal(size=(3, 16))),
        "bias": jnp.zeros(16),
        "mean": jnp.zeros(16),
        "log_variance": jnp.zeros(2),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.02))

    def step(carry, _):
        params, state = carry

        def loss(params):
            dist = predict(params, inputs[0])
            return (fisher8(dist) if corrected else dist).nll(targets[0]).mean()

        value, gradient = jax.value_and_grad(loss)(params)
        dist = predict(params, inputs[0])
        share = top_gradient_share(dist, targets[0], natural=corrected)["mean"]
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), (value, share)

    start = (params, optimizer.init(params))
    (params, _), (losses, shares) = jax.lax.scan(step, start, None, length=400)
    ordinary = jax.tree.map(lambda leaf: leaf[~exact], predict(params, inputs[1]))
    record = TrainingRecord(losses=losses, top_gradient_share=shares)
    return ordinary, targets[1][~exact], record


def test_fisher8_feeds_starved_points():
    """The exact rows hold the gradient of the NLL; all others are left behind."""
    starved, targets, record = train_beside_exact_rows(corrected=False)
    diagnosis = doctor(starved, targets, record=record)
    assert "`fisher8`" in advice_of(diagnosis, "points_starved"), str(diagnosis)
    fed, _, record = train_beside_exact_rows(corrected=True)
    assert float(np.median(record.top_gradient_share)) < 0.1
    assert fed.nll(targets).mean() < starved.nll(targets).mean() - 0.1
    assert "points_starved" not in doctor(fed, targets, record=record).codes


def test_recalibration_of_heavy_tails():
    """For a family without a cousin of heavier tails."""
    rng = np.random.default_rng(0)
    log_mean = jnp.asarray(rng.normal(size=4000))
    noise = rng.standard_t(2.5, size=4000) / 2
    dist = families.LogNormal(log_mean, jnp.full(4000, np.log(np.var(noise))))
    targets = jnp.exp(log_mean + jnp.asarray(noise))
    halves = [jax.tree.map(lambda leaf, s=s: leaf[s], dist) for s in (np.s_[:2000], np.s_[2000:])]
    advice = advice_of(doctor(halves[0], targets[:2000]), "heavy_tails")
    assert "`calibration.IsotonicPIT`" in advice
    cured = IsotonicPIT.fit(halves[0], targets[:2000]).apply(halves[1])
    assert cured.nll(targets[2000:]).mean() < halves[1].nll(targets[2000:]).mean() - 0.02


def test_fewer_degrees_of_freedom_for_heavier_tails():
    rng = np.random.default_rng(0)
    mean, noise = rng.normal(size=3000), rng.standard_t(2, size=3000)
    targets = jnp.asarray(mean + noise)
    narrow = families.StudentT(jnp.asarray(mean), jnp.full(3000, 0.5), df=10.0)
    assert "fewer degrees" in advice_of(doctor(narrow, targets), "heavy_tails")
    heavier = families.StudentT(jnp.asarray(mean), jnp.zeros(3000), df=2.5)
    assert heavier.nll(targets).mean() < narrow.nll(targets).mean() - 0.02
    assert "heavy_tails" not in doctor(heavier, targets).codes


def test_the_cured_trainings_are_those_of_faults():
    assert set(test_doctor.CURED) <= set(test_doctor.FAULTY)
    assert {Setup(1), Setup(4)} <= set(test_doctor.CURED.values())  # more data; a scale that learns


def test_micro_batches_that_share_the_norms_of_the_batch():
    """`optax.MultiSteps` makes another step than the whole batch; the advice makes that one."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(4, 75)) * np.arange(1, 5)[:, None])
    y = 2 * x + jnp.asarray(rng.normal(size=(4, 75)))

    def predict(params, x):
        return Gaussian(params[0] * x, params[1] * jnp.ones_like(x))

    def gradient(params, x, y):
        return jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params)

    params, sgd = jnp.zeros(2), optax.sgd(1.0)
    whole = gradient(params, x.ravel(), y.ravel())
    steps = optax.MultiSteps(sgd, every_k_schedule=4)
    state = steps.init(params)
    for part in range(4):
        updates, state = steps.update(gradient(params, x[part], y[part]), state, params)
    dist, targets = predict(jnp.array([2.0, 0.0]), x.ravel()), y.ravel()
    diagnosis = doctor(dist, targets, record=TrainingRecord(optimizer=state))
    assert "`microbatched_value_and_grad`" in advice_of(diagnosis, "micro_batches_normalised")
    assert np.linalg.norm(updates + whole) > 0.1 * np.linalg.norm(whole)

    value_and_grad = microbatched_value_and_grad(predict, microbatch_size=75)
    _, advised = value_and_grad(params, x.ravel(), y.ravel())
    np.testing.assert_allclose(advised, whole, rtol=1e-12)
    assert not doctor(dist, targets, record=TrainingRecord(optimizer=sgd.init(params)))
