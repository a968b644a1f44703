"""The doctor beyond the Gaussian: silent on true models, with the right name for wrong ones."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, families
from fisher8_jax.calibration import IsotonicPIT, VarianceScaling
from fisher8_jax.diagnostics import TrainingRecord, doctor
from tests.families.table import CASES

POINTS = 600


def spread_out(case, rng):
    """The four distributions of a row of the table, and others between them, many times."""
    weights = rng.dirichlet(np.full(4, 0.3), size=POINTS)
    return jax.tree.map(
        lambda leaf: jnp.asarray(np.tensordot(weights, leaf, axes=1), jnp.float32), case.dist
    )


@pytest.mark.parametrize("name", CASES)
def test_silent_on_the_true_model(name):
    # At most ten tests of level 1e-3 each; two alarms of three draws have probability 3e-4.
    alarms = []
    for seed in range(3):
        dist = spread_out(CASES[name], np.random.default_rng(seed))
        found = doctor(dist, dist.sample(jax.random.key(seed)))
        alarms += [str(found)] if found else []
    assert len(alarms) <= 1, alarms


def halves(dist, targets):
    """The same predictions and targets twice: to fit a cure, and to judge it."""
    half = targets.shape[0] // 2
    first, second = (
        jax.tree.map(lambda leaf, s=s: leaf[s], dist) for s in (np.s_[:half], np.s_[half:])
    )
    return (first, targets[:half]), (second, targets[half:])


def test_overdispersed_counts_name_the_negative_binomial():
    rng = np.random.default_rng(0)
    log_mean = jnp.asarray(1 + 0.5 * rng.normal(size=POINTS))
    truth = families.NegativeBinomial(log_mean, jnp.full(POINTS, 1.0))
    targets = truth.sample(jax.random.key(0))
    diagnosis = doctor(families.Poisson(log_mean), targets)
    finding = next(f for f in diagnosis.findings if f.code == "overdispersed")
    assert "`families.NegativeBinomial`" in finding.advice
    promised = finding.figures["gain_of_family"]
    gain = (families.Poisson(log_mean).nll(targets) - truth.nll(targets)).mean()
    assert promised == pytest.approx(float(gain), abs=0.02)  # the grid finds the concentration


def test_additional_zeros_name_the_zero_inflated_poisson():
    rng = np.random.default_rng(1)
    log_rate = jnp.asarray(1.5 + 0.5 * rng.normal(size=POINTS))
    truth = families.ZeroInflatedPoisson(jnp.full(POINTS, -0.5), log_rate)
    targets = truth.sample(jax.random.key(1))
    finding = next(
        f
        for f in doctor(families.Poisson(jnp.log(truth.mean)), targets).findings
        if f.code == "overdispersed"
    )
    assert "`families.ZeroInflatedPoisson`" in finding.advice
    assert truth.nll(targets).mean() < families.Poisson(jnp.log(truth.mean)).nll(targets).mean()


def test_heavy_tails_name_the_student_t_and_it_helps():
    rng = np.random.default_rng(0)
    mean, targets = rng.normal(size=2000), rng.standard_t(3, size=2000)
    dist = Gaussian(jnp.asarray(mean), jnp.full(2000, np.log(3.0)))
    targets = jnp.asarray(mean + targets)
    finding = next(f for f in doctor(dist, targets).findings if f.code == "heavy_tails")
    assert "`families.StudentT` with df = 3" in finding.advice
    student = families.StudentT(dist.mean, jnp.zeros(2000), df=finding.figures["df"])
    gain = float((dist.nll(targets) - student.nll(targets)).mean())
    assert gain == pytest.approx(finding.figures["gain_in_nats"], abs=0.05)
    assert gain > 0.05
    assert not doctor(student, targets)


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_the_factor_on_the_spread_helps(shift):
    mean, targets = np.random.default_rng(2).normal(size=(2, POINTS))
    dist = Gaussian(jnp.asarray(mean), jnp.full(POINTS, shift))
    (fit, fit_y), (test, test_y) = halves(dist, jnp.asarray(mean + targets))
    assert "VarianceScaling" in doctor(fit, fit_y).findings[0].advice
    cured = VarianceScaling.fit(fit, fit_y).apply(test)
    assert cured.nll(test_y).mean() < test.nll(test_y).mean() - 0.02
    assert not doctor(cured, test_y)


def test_isotonic_recalibration_helps_where_no_factor_does():
    rng = np.random.default_rng(3)
    log_mean = jnp.asarray(rng.normal(size=800))
    truth = families.LogNormal(log_mean, jnp.zeros(800))
    targets = truth.sample(jax.random.key(3))
    dist = families.LogNormal(log_mean, jnp.full(800, -1.5))
    (fit, fit_y), (test, test_y) = halves(dist, targets)
    finding = doctor(fit, fit_y).findings[0]
    assert finding.code == "overconfident"
    assert "IsotonicPIT" in finding.advice
    cured = IsotonicPIT.fit(fit, fit_y).apply(test)
    assert cured.nll(test_y).mean() < test.nll(test_y).mean() - 0.02


def test_units_that_are_undone_as_advised():
    mean, noise = np.random.default_rng(4).normal(size=(2, POINTS))
    targets = jnp.asarray(100 + 20 * (mean + 0.3 * noise))
    dist = Gaussian(jnp.asarray(mean), jnp.full(POINTS, 2 * np.log(0.3)))
    diagnosis = doctor(dist, targets)
    (finding,) = diagnosis.findings  # not that the scale is off: the mean was learnt
    assert (finding.code, finding.severity) == ("mean_off", "error")
    cured = dist.unscale(finding.figures["intercept"], finding.figures["slope"])
    assert cured.nll(targets).mean() < dist.nll(targets).mean() - 1
    assert not doctor(cured, targets)


@pytest.mark.parametrize("seed", range(5))
def test_a_variance_that_follows_the_input_cures_a_constant_one(seed):
    """Noise that grows with the input: not heavy tails, whatever else is known."""
    rng = np.random.default_rng(seed)
    x, noise = rng.uniform(-2, 2, 600), rng.normal(size=600)
    mean, std = jnp.asarray(np.sin(7 * x)), jnp.asarray(np.exp(x - 1))
    targets = mean + std * jnp.asarray(noise)
    constant = Gaussian.from_std(mean, jnp.full(600, jnp.sqrt(jnp.mean(std**2))))
    said = doctor(constant, targets)
    assert said.codes == ("variance_constant", "heavy_tails")
    assert "Predict the variance from the input" in said.findings[0].advice
    assert said.findings[1].advice.startswith("If the noise does not depend on the input")
    tested = doctor(constant, targets, inputs=jnp.asarray(x))
    assert tested.codes == ("variance_constant",)
    assert "input 0" in tested.findings[0].sentence
    cured = Gaussian.from_std(mean, std)
    assert cured.nll(targets).mean() < constant.nll(targets).mean() - 0.5
    assert not doctor(cured, targets, inputs=jnp.asarray(x))


def test_a_scale_that_is_learnt_again_cures_a_misplaced_variance():
    x, noise = np.random.default_rng(5).normal(size=(2, 2000))
    targets = jnp.asarray(np.exp(0.5 * x) * noise)
    dist = Gaussian(jnp.zeros(2000), jnp.asarray(-0.7 * x))
    finding = next(f for f in doctor(dist, targets).findings if f.code == "variance_misplaced")
    assert "more training" in finding.advice
    (_, fit_y), (test, test_y) = halves(dist, targets)

    def scale(params, x):
        return Gaussian(jnp.zeros(1000), params[0] + params[1] * x)

    params = jnp.array([0.0, -0.7])
    gradient = jax.jit(jax.grad(lambda p: scale(p, jnp.asarray(x[:1000])).nll(fit_y).mean()))
    for _ in range(100):
        params = params - 0.3 * gradient(params)
    cured = scale(params, jnp.asarray(x[1000:]))
    assert cured.nll(test_y).mean() < test.nll(test_y).mean() - 0.1
    assert "variance_misplaced" not in doctor(cured, test_y).codes


class TestDataThatCannotBeJudged:
    def test_all_targets_nan(self):
        diagnosis = doctor(Gaussian(jnp.zeros(40), jnp.zeros(40)), jnp.full(40, jnp.nan))
        assert diagnosis.codes[0] == "non_finite_targets"
        assert "where=jnp.isfinite(targets)" in diagnosis.findings[0].advice

    def test_some_targets_nan(self):
        mean, noise = np.random.default_rng(0).normal(size=(2, 300))
        targets = jnp.asarray(np.where(np.arange(300) < 7, np.inf, mean + noise))
        diagnosis = doctor(Gaussian(jnp.asarray(mean), jnp.zeros(300)), targets)
        assert diagnosis.codes == ("non_finite_targets",)
        assert diagnosis.findings[0].figures["not_finite"] == 7

    def test_no_rows(self):
        assert doctor(Gaussian(jnp.zeros(0), jnp.zeros(0)), jnp.zeros(0)).codes == ("no_data",)
        assert doctor(Gaussian(jnp.zeros((0, 2)), jnp.zeros((0, 2))), jnp.zeros((0, 2)))

    def test_everything_masked(self):
        dist = Gaussian(jnp.zeros(5), jnp.zeros(5))
        assert doctor(dist, jnp.zeros(5), where=jnp.zeros(5, bool)).codes == ("no_data",)

    @pytest.mark.parametrize("mean", [0.0, 3e38])
    @pytest.mark.parametrize("log_variance", [-200.0, 88.0])
    def test_extremes_give_findings(self, mean, log_variance):
        rng = np.random.default_rng(0)
        scale = jnp.asarray(np.where(np.arange(50) == 0, log_variance, rng.normal(size=50)))
        dist = Gaussian(jnp.full(50, mean), scale)
        assert doctor(dist, jnp.asarray(rng.normal(size=50)))


def test_diagnoses_and_records_are_json():
    record = TrainingRecord(
        losses=[1.0, np.inf, np.nan], learning_rate=0.1, dead_share={"hidden": 1.0}, target_std=1.0
    )
    diagnosis = doctor(Gaussian(jnp.zeros(50), jnp.full(50, -300.0)), jnp.ones(50), record=record)
    stored = json.loads(json.dumps([diagnosis.as_dict(), record.as_dict()], allow_nan=False))
    assert [f["code"] for f in stored[0]["findings"]] == [f.code for f in diagnosis.findings]
    assert stored[1]["losses"] == [1.0, None, None]
    assert stored[1]["dead_share"] == {"hidden": 1.0}
