"""What new users get wrong is named first, and following the advice cures it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, doctor, families
from fisher8_jax.calibration import IsotonicPIT

POINTS = 1200


def truth(seed=0):
    """Inputs, mean, standard deviation and targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (POINTS, 2))
    mean, std = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1], np.exp(0.7 * x[:, 1] - 1)
    return (*map(jnp.asarray, (x, mean, std)), jnp.asarray(mean + std * rng.normal(size=POINTS)))


def first(diagnosis):
    return diagnosis.findings[0]


@pytest.mark.parametrize(
    ("passed", "constructor"),
    [
        (jnp.log, "from_std"),
        (lambda std: 4 * jnp.log(std), "from_variance"),
        (jnp.square, "from_variance"),
        (lambda std: std, "from_std"),
    ],
    ids=["std as variance", "variance as std", "variance as log", "std as log"],
)
def test_a_field_that_was_taken_for_another(passed, constructor):
    x, mean, std, y = truth()
    diagnosis = doctor(Gaussian(mean, passed(std)), y, inputs=x)
    assert diagnosis.codes == ("fields_mixed_up",)
    assert f"`Gaussian.{constructor}(" in first(diagnosis).advice
    argument = {"from_std": std, "from_variance": std**2}[constructor]
    cured = getattr(Gaussian, constructor)(mean, argument)
    gain = float((Gaussian(mean, passed(std)).nll(y) - cured.nll(y)).mean())
    assert gain > first(diagnosis).figures["gain_in_nats"] > 0.1
    assert not doctor(cured, y, inputs=x)


def test_outputs_in_the_wrong_order():
    _, mean, std, y = truth()
    diagnosis = doctor(Gaussian(2 * jnp.log(std), mean), y)
    assert diagnosis.codes == ("fields_mixed_up",)
    assert "by name" in first(diagnosis).advice
    assert not doctor(Gaussian(mean=mean, log_variance=2 * jnp.log(std)), y)


@pytest.mark.parametrize("slope", [0.7, 1.4])
def test_a_variance_that_is_too_flat_or_too_steep_is_not_mixed_up(slope):
    _, mean, std, y = truth()
    log_variance = 2 * jnp.log(std)
    centre = log_variance.mean()
    codes = doctor(Gaussian(mean, centre + slope * (log_variance - centre)), y).codes
    assert codes
    assert "fields_mixed_up" not in codes


def test_predictions_of_logarithms():
    _, mean, std, y = truth()
    dist = Gaussian(mean, 2 * jnp.log(std))
    diagnosis = doctor(dist, jnp.exp(y))
    assert diagnosis.codes == ("mean_off",)
    assert "logarithms" in first(diagnosis).sentence
    assert not doctor(families.LogNormal(location=mean, log_variance=dist.log_variance), jnp.exp(y))


def test_a_standard_deviation_that_was_left_in_other_units():
    _, mean, std, y = truth()
    diagnosis = doctor(Gaussian(50 + 8 * mean, 2 * jnp.log(std)), 50 + 8 * y)
    assert diagnosis.codes == ("overconfident",)
    assert first(diagnosis).advice.startswith("Check first that the standard deviation was brought")
    assert not doctor(Gaussian(mean, 2 * jnp.log(std)).unscale(50.0, 8.0), 50 + 8 * y)


@pytest.mark.parametrize("scale", [1.0, 80.0])
def test_rows_in_different_orders_come_before_their_consequences(scale):
    _, mean, std, y = truth()
    dist = Gaussian(mean, 2 * jnp.log(std)).unscale(5 * scale, scale)
    targets = 5 * scale + scale * jax.random.permutation(jax.random.key(0), y)
    assert first(doctor(dist, targets)).code == "mean_uninformative"


@pytest.mark.parametrize(("value", "every"), [(0.0, 7), (-999.0, 40)])
def test_placeholders_of_missing_targets(value, every):
    _, mean, std, y = truth()
    dist = Gaussian(10 + mean, 2 * jnp.log(std))
    targets = jnp.where(jnp.arange(POINTS) % every == 0, value, 10 + y)
    diagnosis = doctor(dist, targets)
    assert diagnosis.codes == ("placeholder_targets",)
    assert f"`where=targets != {value:g}`" in first(diagnosis).advice
    assert not doctor(dist, targets, where=targets != value)


def test_common_values_that_are_predicted_are_no_placeholders():
    """Rounded targets, and a limit where the mean is near it."""
    _, mean, std, y = truth()
    dist = Gaussian(10 + mean, 2 * jnp.log(std))
    assert "placeholder_targets" not in doctor(dist, jnp.round(10 + y)).codes
    assert "placeholder_targets" not in doctor(dist, jnp.maximum(10 + y, 10.0)).codes


def test_a_line_through_a_curve():
    x, _, std, y = truth()
    design = jnp.concatenate([x, jnp.ones((POINTS, 1))], axis=1)
    line = design @ jnp.linalg.lstsq(design, y)[0]
    too_small = Gaussian(line, jnp.full(POINTS, jnp.log(jnp.mean((y - line) ** 2))))
    diagnosis = doctor(too_small, y, inputs=x)
    assert first(diagnosis).code == "mean_misses_input"
    assert "input 0" in first(diagnosis).sentence
    assert "more units or layers" in first(diagnosis).advice
    features = jnp.concatenate([design, jnp.sin(2 * x[:, :1]), jnp.cos(2 * x[:, :1])], axis=1)
    larger = features @ jnp.linalg.lstsq(features, y)[0]
    assert not doctor(Gaussian(larger, 2 * jnp.log(std)), y, inputs=x)


def test_inputs_that_were_not_scaled():
    """Saturated units see the sign of the input at most."""
    x, mean, std, y = truth()
    raw = 1000 + 300 * x

    def fit(inputs):
        hidden = jnp.tanh(inputs @ jnp.array([[1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.1, 0.3]]))
        design = jnp.concatenate([hidden, inputs[:, 1:], jnp.ones((POINTS, 1))], axis=1)
        return design @ jnp.linalg.lstsq(design, y)[0]

    def judged(inputs):
        mean = fit(inputs)
        spread = jnp.log(jnp.mean((y - mean) ** 2))
        return doctor(Gaussian(mean, jnp.full(POINTS, spread)), y, inputs=inputs)

    diagnosis = judged(raw)
    assert first(diagnosis).code == "input_scale_off"
    assert "Standardise" in first(diagnosis).advice
    standardised = (raw - raw.mean(axis=0, keepdims=True)) / raw.std(axis=0, keepdims=True)
    assert "input_scale_off" not in judged(standardised).codes
    assert jnp.var(y - fit(standardised)) < 0.7 * jnp.var(y - fit(raw))
    assert not doctor(Gaussian(mean, 2 * jnp.log(std)), y, inputs=raw)  # harmless by itself


def test_noise_that_depends_on_an_input_that_the_variance_ignores():
    x, mean, std, y = truth()
    other = jnp.exp(0.7 * x[:, 0])
    y = mean + (y - mean) * other
    ignored = Gaussian(mean, 2 * jnp.log(std) + jnp.log(jnp.mean(other**2)))
    assert "heavy_tails" in doctor(ignored, y).codes  # nothing to order the points by
    diagnosis = doctor(ignored, y, inputs=x)
    assert diagnosis.codes == ("variance_misplaced",)
    assert "input 0" in first(diagnosis).sentence
    assert not doctor(Gaussian(mean, 2 * jnp.log(std * other)), y, inputs=x)


@pytest.mark.parametrize("kind", ["skewed", "two groups"])
def test_errors_of_another_shape(kind):
    _, mean, std, _ = truth()
    rng = np.random.default_rng(1)
    skewed = rng.exponential(size=POINTS) - 1
    groups = 0.95 * rng.choice([-1, 1], POINTS) + 0.312 * rng.normal(size=POINTS)
    dist = Gaussian(mean, 2 * jnp.log(std))
    targets = mean + std * jnp.asarray(skewed if kind == "skewed" else groups)
    diagnosis = doctor(dist, targets)
    assert diagnosis.codes == ("wrong_shape",)
    named = "LogNormal" if kind == "skewed" else "GaussianMixture"
    assert f"`families.{named}`" in first(diagnosis).advice
    half = POINTS // 2
    cured = IsotonicPIT.fit(dist[:half], targets[:half]).apply(dist[half:])
    gain = dist[half:].nll(targets[half:]).mean() - cured.nll(targets[half:]).mean()
    assert gain > 0.5 * first(diagnosis).figures["gain_in_nats"]
    assert "wrong_shape" not in doctor(cured, targets[half:]).codes


def test_the_shape_of_what_a_constant_mean_misses_is_not_named():
    """A sine has two peaks."""
    x = jnp.linspace(0, 40, POINTS)
    targets = jnp.sin(x) + 0.05 * jax.random.normal(jax.random.key(0), (POINTS,))
    collapsed = Gaussian(jnp.zeros(POINTS), jnp.full(POINTS, jnp.log(jnp.var(targets))))
    assert doctor(collapsed, targets).codes == ("collapsed",)
    flat = Gaussian(1e-3 * jnp.cos(7 * x), collapsed.log_variance)
    assert doctor(flat, targets).codes == ("mean_uninformative",)


def test_heavy_tails_alone_are_not_a_wrong_spread():
    """The square of a Student-t of three degrees varies far more than a chi-square law allows."""
    _, mean, std, _ = truth()
    wrong = 0
    for seed in range(20):
        noise = np.random.default_rng(seed).standard_t(3, size=POINTS)
        dist = Gaussian(mean, 2 * jnp.log(std) + jnp.log(3.0))
        wrong += first(doctor(dist, mean + std * jnp.asarray(noise))).code != "heavy_tails"
    assert wrong == 0
