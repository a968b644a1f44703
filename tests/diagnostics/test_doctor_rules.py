"""The doctor's statements, one by one, on predictions and records made for them."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import TrainingRecord, doctor
from fisher8_jax.diagnostics._findings import Diagnosis, Finding
from fisher8_jax.diagnostics._statistics import (
    rank_correlation_score,
    same_in_all_groups,
    spread_probability,
    without_effect,
)
from fisher8_jax.families._contract import Family, family


def right_predictions(number, seed=0, spread=0.5):
    """Predictions that are exactly right, and targets drawn from them."""
    rng = np.random.default_rng(seed)
    mean, log_variance = rng.normal(size=number), spread * rng.normal(size=number)
    return mean, log_variance, mean + np.exp(log_variance / 2) * rng.normal(size=number)


def gaussian(mean, log_variance):
    return Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))


@pytest.mark.parametrize("number", [10, 40, 1000])
def test_false_alarms_are_rare(number):
    # At most 8 tests of level 1e-3 each, so fewer than 1 in 100; 2 of 40 has probability 0.06.
    alarms = 0
    for seed in range(40):
        mean, log_variance, targets = right_predictions(number, seed)
        alarms += bool(doctor(gaussian(mean, log_variance), targets, unit_variance_mean=mean))
    assert alarms <= 2


def only(diagnosis):
    assert len(diagnosis.findings) == 1, str(diagnosis)
    return diagnosis.findings[0]


@pytest.mark.parametrize(("shift", "code"), [(-1.0, "overconfident"), (1.0, "variance_inflated")])
def test_spread_figures_are_those_of_the_residuals(shift, code):
    mean, log_variance, targets = right_predictions(2000)
    finding = only(doctor(gaussian(mean, log_variance + shift), targets))
    z_squared = (targets - mean) ** 2 / np.exp(log_variance + shift)
    assert finding.code == code
    m = z_squared.mean()
    assert finding.figures["mean_z_squared"] == pytest.approx(m, rel=1e-12)
    # The gain is the NLL now minus the NLL after the best common factor on the variance.
    now = np.mean(log_variance + shift + z_squared) / 2
    best = np.mean(log_variance + shift + np.log(m) + z_squared / m) / 2
    assert finding.figures["gain_in_nats"] == pytest.approx(now - best, rel=1e-9)
    assert f"by {np.sqrt(m):.3g}" in finding.advice


def test_a_few_wild_targets_do_not_hide_overconfidence():
    mean, log_variance, targets = right_predictions(1000)
    targets[:30] += 500 * np.exp(log_variance[:30] / 2)
    assert "overconfident" in doctor(gaussian(mean, log_variance), targets).codes


def test_variance_in_the_wrong_places():
    mean, log_variance, targets = right_predictions(2000, spread=1.0)
    codes = doctor(gaussian(mean, -log_variance), targets).codes
    assert codes == ("overconfident", "variance_misplaced")
    flat = np.log(np.mean(np.exp(log_variance)))
    diagnosis = doctor(gaussian(mean, flat + 0.7 * np.sin(5 * mean)), targets)
    # The true variance varies where the predicted one does not know of it: that makes heavy tails.
    assert diagnosis.codes == ("heavy_tails", "variance_misplaced")
    finding = diagnosis.findings[1]
    assert finding.figures["smallest_group"] > 1 > finding.figures["largest_group"]


def test_units_that_were_not_undone():
    mean, log_variance, targets = right_predictions(1000)
    finding = next(
        f
        for f in doctor(gaussian(mean, log_variance), 10 + 3 * targets).findings
        if f.code == "mean_off"
    )
    assert finding.figures["intercept"] == pytest.approx(10, abs=0.3)
    assert finding.figures["slope"] == pytest.approx(3, abs=0.3)


def test_a_mean_that_explains_nothing():
    rng = np.random.default_rng(0)
    mean, targets = rng.normal(size=(2, 500))
    dist = gaussian(0.01 * mean, np.zeros(500))
    finding = only(doctor(dist, targets))
    assert finding.code == "mean_uninformative"
    assert finding.severity == "error"


def test_worse_than_unit_variance_needs_significance_and_size():
    mean, log_variance, targets = right_predictions(1000, spread=0.0)
    rng = np.random.default_rng(1)
    slightly, clearly = mean + 0.02 * rng.normal(size=1000), mean + 0.5 * rng.normal(size=1000)
    widened = np.full(1000, np.log(1.25))
    assert not doctor(gaussian(slightly, log_variance), targets, unit_variance_mean=mean)
    codes = doctor(gaussian(clearly, widened), targets, unit_variance_mean=mean).codes
    assert "mean_worse_than_unit_variance" in codes
    assert not doctor(gaussian(mean, log_variance), targets, unit_variance_mean=clearly)


def test_every_target_is_judged_by_itself():
    columns = [right_predictions(800, seed) for seed in (0, 1)]
    mean, log_variance, targets = (np.stack(c, axis=1) for c in zip(*columns, strict=True))
    log_variance[:, 1] += 1.5
    finding = only(doctor(gaussian(mean, log_variance), targets, target_names=["Om", "S8"]))
    assert (finding.code, finding.target) == ("variance_inflated", "S8")
    assert only(doctor(gaussian(mean, log_variance), targets)).target == "target 1"
    assert "variance_inflated [S8]" in str(finding)


def test_masked_points_do_not_count():
    mean, log_variance, targets = right_predictions(300)
    targets[:50], mean[50:60] = np.nan, np.nan
    where = jnp.arange(300) >= 60
    assert not doctor(gaussian(mean, log_variance), targets, where=where)
    finding = only(doctor(gaussian(mean, log_variance), targets, where=jnp.arange(300) >= 50))
    assert finding.code == "non_finite_predictions"
    assert dict(finding.figures) == {"not_finite": 10.0, "predictions": 250.0}


def test_all_predictions_bad():
    bad = np.full(20, np.nan)
    assert doctor(gaussian(bad, bad), np.zeros(20)).codes == ("non_finite_predictions",)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrow_types(dtype):
    mean, log_variance, targets = right_predictions(500)
    dist = Gaussian(jnp.asarray(mean, dtype), jnp.asarray(log_variance, dtype))
    assert not doctor(dist, jnp.asarray(targets, dtype))
    assert doctor(Gaussian(dist.mean, dist.log_variance - 2), jnp.asarray(targets, dtype))


class TestSaturation:
    def test_ties_at_an_end_betray_a_bound(self):
        mean, log_variance, targets = right_predictions(1000, spread=1.0)
        clipped = np.maximum(log_variance, -1.0)
        codes = doctor(gaussian(mean, clipped), targets).codes
        assert codes == ("variance_saturated",)

    def test_a_soft_bound_is_found_when_stated(self):
        mean, log_variance, targets = right_predictions(1000, spread=1.0)
        soft = np.minimum(log_variance, 1.0 - 1e-4 * np.abs(log_variance))
        record = TrainingRecord(
            log_variance_bounds=(None, 1.0), largest_log_variance=np.full(10, 1.0)
        )
        assert not doctor(gaussian(mean, soft), targets)
        finding = only(doctor(gaussian(mean, soft), targets, record=record))
        assert finding.figures["share"] == pytest.approx(np.mean(log_variance >= 0.99), abs=1e-3)
        assert "100 % of the steps" in finding.sentence

    def test_a_constant_variance_is_no_bound(self):
        mean, log_variance, targets = right_predictions(1000, spread=0.0)
        moving = np.linspace(1, 0, 50)
        record = TrainingRecord(smallest_log_variance=moving, largest_log_variance=moving)
        assert not doctor(gaussian(mean, log_variance), targets, record=record)


class TestRecords:
    """Records next to right predictions, so that only the record speaks."""

    def codes(self, **notes):
        mean, log_variance, targets = right_predictions(400)
        return doctor(gaussian(mean, log_variance), targets, record=TrainingRecord(**notes)).codes

    noise = 0.05 * np.random.default_rng(0).normal(size=1000)
    steps = np.arange(1000)

    def test_converged(self):
        losses = np.exp(-self.steps / 100) + self.noise
        assert self.codes(losses=losses, step_kl=np.full(1000, 1e-4), learning_rate=0.1) == ()

    def test_noise_around_a_constant(self):
        assert self.codes(losses=self.noise, validation_losses=self.noise[:50]) == ()

    def test_straight_line(self):
        assert self.codes(losses=self.noise - self.steps / 1e3) == ("learning_rate_too_low",)

    def test_a_decayed_learning_rate_does_not_pass_for_convergence(self):
        rate = 0.5 * (1 + np.cos(np.pi * self.steps / 1000))
        losses = -np.cumsum(rate) / 500 + 0.1 * self.noise
        assert self.codes(losses=losses) == ()
        assert self.codes(losses=losses, learning_rate=rate) == ("learning_rate_too_low",)

    def test_still_falling(self):
        losses = 2 * np.exp(-self.steps / 300) + 0.2 * self.noise
        assert self.codes(losses=losses) == ("undertrained",)

    def test_climbed_back(self):
        losses = np.abs(self.steps / 500 - 1) + self.noise
        assert self.codes(losses=losses) == ("learning_rate_too_high",)

    def test_lost_the_finite_numbers(self):
        losses = np.where(self.steps < 17, 1.0, np.nan)
        mean, log_variance, targets = right_predictions(400)
        record = TrainingRecord(losses=losses, learning_rate=0.25)
        finding = only(doctor(gaussian(mean, log_variance), targets, record=record))
        assert finding.figures["first_bad_step"] == 17
        assert "Lower it from 0.25" in finding.advice

    def test_steps_that_still_move(self):
        assert self.codes(step_kl=np.full(100, 0.1)) == ("noise_walk",)
        assert self.codes(step_kl=np.full(1000, 0.1), losses=self.noise) == ("noise_walk",)

    def test_long_steps_that_still_lower_the_loss_are_no_walk(self):
        losses = self.noise - self.steps / 1e3
        assert "noise_walk" not in self.codes(step_kl=np.full(1000, 0.1), losses=losses)

    def test_validation_loss_that_rose(self):
        losses = np.square(np.linspace(-1, 2, 60))
        assert self.codes(validation_losses=losses) == ("overfitted",)

    def test_causes_are_silent_without_a_symptom(self):
        causes = {"target_std": 100.0, "top_gradient_share": np.full(10, 0.9)}
        assert self.codes(**causes) == ()
        codes = self.codes(**causes, step_kl=np.full(100, 0.1))
        assert codes == ("target_scale_off", "noise_walk", "points_starved")


def test_report_reads_well():
    finding = Finding("overconfident", "error", "Too small.", {"m": 2.0}, "Widen.", target="S8")
    assert str(Diagnosis((finding,))) == (
        "error: overconfident [S8]\n  Too small.\n  What to change: Widen.\n  Figures: m = 2"
    )


def test_errors_name_the_argument_and_the_fix():
    dist = gaussian(np.zeros(5), np.zeros(5))
    with pytest.raises(ValueError, match=r"`targets` must have the shape of the predictions"):
        doctor(dist, np.zeros(4))
    with pytest.raises(ValueError, match=r"`unit_variance_mean` must have the shape"):
        doctor(dist, np.zeros(5), unit_variance_mean=np.zeros(4))
    with pytest.raises(
        ValueError, match=r"`target_names` must have one name per target: 1 targets"
    ):
        doctor(dist, np.zeros(5), target_names=["a", "b"])
    with pytest.raises(ValueError, match=r"`losses` must hold one number per step.*\(2, 2\)"):
        TrainingRecord(losses=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"`log_variance_bounds` must be \(lower, upper\)"):
        TrainingRecord(log_variance_bounds=(1.0,))
    with pytest.raises(ValueError, match=r"`target_std` must be finite and not negative, got -1"):
        TrainingRecord(target_std=-1.0)
    with pytest.raises(ValueError, match=r"`significance` must be above 0 and at most 1, got 2"):
        doctor(dist, np.zeros(5), significance=2)
    with pytest.raises(ValueError, match=r"`dist` must hold a batch"):
        doctor(gaussian(0.0, 0.0), 0.0)
    with pytest.raises(ValueError, match=r"`inputs` must hold one row per prediction, 5 of them"):
        doctor(dist, np.zeros(5), inputs=np.zeros((4, 2)))
    with pytest.raises(TypeError, match=r"got ndarray.*`Gaussian.from_std\(mean, std\)`"):
        doctor(np.zeros(5), np.zeros(5))


def test_rank_tests_of_constants_find_nothing():
    constant, rising = np.ones(80), np.arange(80.0)
    assert rank_correlation_score(constant, rising) == rank_correlation_score(rising, constant) == 0
    assert rank_correlation_score(rising, rising) == pytest.approx(np.sqrt(79))
    groups = np.array_split(np.arange(80), 2)
    assert same_in_all_groups(constant, groups) == 1
    assert same_in_all_groups(rising, groups) < 1e-10


@pytest.mark.parametrize("columns", [1, 2])
def test_f_test_is_that_of_scipy(columns):
    rng = np.random.default_rng(columns)
    scores, design = 3 * rng.normal(size=100), rng.normal(size=(100, columns))
    probability, left = without_effect(scores, design)
    expected = scores - design @ np.linalg.lstsq(design, scores, rcond=None)[0]
    np.testing.assert_allclose(left, expected, atol=1e-10)
    explained = np.sum(scores**2) - np.sum(left**2)
    free = 100 - columns
    statistic = explained / columns / (np.sum(left**2) / free)
    exact = scipy.stats.f.sf(statistic, columns, free)
    assert probability == pytest.approx(exact, rel=1e-9)
    twice = np.concatenate([design, design], axis=1)  # columns that add nothing
    assert without_effect(scores, twice)[0] == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize("number", [5, 50, 5000])
def test_probability_of_a_mean_square_is_two_sided(number):
    for tail in (1e-3, 0.3):
        for total in (scipy.stats.chi2.isf(tail, number), scipy.stats.chi2.ppf(tail, number)):
            scores = np.full(number, np.sqrt(total / number))
            assert spread_probability(scores) == pytest.approx(2 * tail, rel=1e-9)


@family
class Cauchy(Family):
    """A likelihood without mean and variance, with just what the doctor asks."""

    location: jnp.ndarray
    log_scale: jnp.ndarray

    batch_shape = property(lambda self: self.location.shape)
    event_shape = property(lambda self: ())
    mean = property(lambda self: jnp.full_like(self.location, jnp.nan))
    variance = property(lambda self: jnp.full_like(self.location, jnp.inf))

    def cdf(self, targets):
        z = (targets - self.location) * jnp.exp(-self.log_scale)
        return 0.5 + jnp.arctan(z) / jnp.pi

    def _unused(self, *_, **__):
        raise NotImplementedError

    nll = natural = fisher = kl = quantile = draw = _unused


def test_a_family_without_moments_is_judged_by_its_pit():
    rng = np.random.default_rng(0)
    location, log_scale = rng.normal(size=(2, 1999))
    targets = location + np.exp(log_scale) * rng.standard_cauchy(size=1999)
    right = Cauchy(jnp.asarray(location), jnp.asarray(log_scale))
    assert not doctor(right, targets)
    narrow = Cauchy(jnp.asarray(location), jnp.asarray(log_scale - 2))
    assert doctor(narrow, targets).codes == ("overconfident",)


def test_micro_batches_that_are_normalised_one_by_one_are_named():
    """By the kinds of state that the optimizer consists of, whatever is around them."""
    optimizer = optax.chain(optax.clip(1.0), optax.MultiSteps(optax.adam(0.1), 4))
    state = optimizer.init({"w": jnp.zeros(3)})
    rng = np.random.default_rng(0)
    mean = jnp.linspace(-2, 2, 300)
    targets = mean + jnp.asarray(rng.normal(size=300))
    record = TrainingRecord(optimizer=state)
    assert "MultiStepsState" in record.as_dict()["optimizer"]
    assert TrainingRecord(optimizer=record.optimizer).optimizer == record.optimizer
    diagnosis = doctor(Gaussian(mean, jnp.zeros(300)), targets, record=record)
    assert diagnosis.codes == ("micro_batches_normalised",)
    assert "microbatched_value_and_grad" in diagnosis.findings[0].advice
    plain = TrainingRecord(optimizer=optax.adam(0.1).init(jnp.zeros(3)))
    assert not doctor(Gaussian(mean, jnp.zeros(300)), targets, record=plain)
