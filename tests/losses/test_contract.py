"""What every loss promises: one signature, masks, weights, dtypes, transformations and errors."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.families._contract import Family, family
from fisher8_jax.losses import LOSSES
from fisher8_jax.training import LossGradient

NAMES = tuple(LOSSES)
SHAPE = (6, 2)
RNG = np.random.default_rng(2)
MEAN, S, Y = RNG.normal(size=(3, *SHAPE))


def needs(name, dtype=jnp.float64):
    """What a loss needs beyond a distribution and targets; the benchmarks' losses replace this."""
    return {}


def call(name, mean, log_variance, targets, **kwargs):
    extra = needs(name, mean.dtype)
    return LOSSES[name](Gaussian(mean, log_variance), targets, **extra, **kwargs)


def inputs(dtype=jnp.float64):
    return tuple(jnp.asarray(x, dtype) for x in (MEAN, S, Y))


def value_and_gradients(name, *args, **kwargs):
    def total(mean, log_variance, targets):
        values = call(name, mean, log_variance, targets, **kwargs)
        return values.sum(), values

    (_, values), grads = jax.value_and_grad(total, (0, 1), has_aux=True)(*args)
    return values, grads


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    parameters = inspect.signature(LOSSES[name]).parameters
    assert list(parameters)[:2] == ["dist", "targets"]
    keyword_only = [p for p in parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert {"where", "weights"} <= {p.name for p in keyword_only}
    assert len(parameters) == len(keyword_only) + 2
    assert LOSSES[name].__name__ == {"fisher8": "fisher8_nll"}.get(name, name)


@pytest.mark.parametrize("name", NAMES)
def test_masked_elements_do_not_exist(name):
    """Predictions, targets and weights outside the mask may be anything at all."""
    where = jnp.asarray(RNG.random(SHAPE) < 0.6)
    mean, s, y = inputs()
    clean_values, clean_gradients = value_and_gradients(name, mean, s, y, where=where)
    spoiled = [jnp.where(where, x, bad) for x, bad in ((mean, jnp.inf), (s, 1e4), (y, jnp.nan))]
    weights = jnp.where(where, 1.0, jnp.nan)
    values, grads = value_and_gradients(name, *spoiled, where=where, weights=weights)
    np.testing.assert_array_equal(values, clean_values)
    np.testing.assert_array_equal(values[~where], 0)
    for actual, expected in zip(grads, clean_gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
        np.testing.assert_array_equal(actual[~where], 0)
    if name != "fisher8":  # its norm runs over what is inside the mask
        full_values, full_gradients = value_and_gradients(name, mean, s, y)
        np.testing.assert_allclose(values[where], full_values[where], rtol=1e-12)
        np.testing.assert_allclose(grads[0][where], full_gradients[0][where], rtol=1e-12)


# The two that use the fused rule of the package discard nan at the end instead.
NEVER_NAN = sorted(set(NAMES) - {"natural_gradient", "fisher8"})


@pytest.mark.parametrize("name", NEVER_NAN)
def test_masked_nan_passes_the_nan_checker(name):
    """`jax_debug_nans` looks at every intermediate result outside of jit."""
    where = jnp.asarray([[True, True], [False, False]] * 3)
    mean, s, y = inputs()
    y, weights = jnp.where(where, y, jnp.nan), jnp.where(where, 1.0, jnp.nan)
    extra = needs(name)
    if "reference" in extra:
        spoil = jax.tree.map(lambda leaf: jnp.where(where, leaf, jnp.nan), extra["reference"])
        extra = {"reference": spoil}

    def total(mean, s):
        dist = Gaussian(mean, s)
        return LOSSES[name](dist, y, where=where, weights=weights, **extra).sum()

    with jax.debug_nans(True):
        value, grads = jax.value_and_grad(total, (0, 1))(mean, s)
    assert np.isfinite(value)
    for gradient in grads:
        np.testing.assert_array_equal(gradient[1::2], 0)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_factors(name):
    weights = jnp.asarray(RNG.random((SHAPE[0], 1)))
    plain_values, plain_gradients = value_and_gradients(name, *inputs())
    values, grads = value_and_gradients(name, *inputs(), weights=weights)
    np.testing.assert_allclose(values, weights * plain_values, rtol=1e-12)
    if name != "fisher8":
        for actual, plain in zip(grads, plain_gradients, strict=True):
            np.testing.assert_allclose(actual, weights * plain, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_jit_and_vmap(name):
    """Mapped over the columns, a loss gives what it gives on the whole array."""
    values, grads = value_and_gradients(name, *inputs())
    if name == "collier":  # mapped calls would draw other numbers
        function = jax.jit(lambda *args: value_and_gradients(name, *args))
        jitted_values, jitted_gradients = function(*inputs())
    else:
        reference = needs(name)

        def column(mean, s, y, reference):
            def total(mean, s):
                values = LOSSES[name](Gaussian(mean, s), y, **reference)
                return values.sum(), values

            (_, values), grads = jax.value_and_grad(total, (0, 1), has_aux=True)(mean, s)
            return values, grads

        mapped = jax.jit(jax.vmap(column, in_axes=1, out_axes=1))
        jitted_values, jitted_gradients = mapped(*inputs(), reference)
    np.testing.assert_allclose(jitted_values, values, rtol=1e-12)
    for actual, expected in zip(jitted_gradients, grads, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.1)], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_narrow_dtypes(name, dtype, tolerance):
    """Gradients keep the dtype, values may be wider; the error is that of rounding.

    The same draws are used throughout.
    """
    narrow = inputs(dtype)
    wide = tuple(x.astype(jnp.float64) for x in narrow)
    if name == "collier":  # double precision draws other numbers
        wide = tuple(x.astype(jnp.float32) for x in narrow)
    values, grads = value_and_gradients(name, *narrow)
    wide_values, wide_gradients = value_and_gradients(name, *wide)
    assert values.dtype in (dtype, jnp.float32)  # a Gaussian likelihood is at least float32
    np.testing.assert_allclose(
        values.astype(jnp.float64), wide_values, rtol=tolerance, atol=tolerance
    )
    for actual, expected in zip(grads, wide_gradients, strict=True):
        assert actual.dtype == dtype
        np.testing.assert_allclose(
            actual.astype(jnp.float64), expected, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_argument(name):
    mean, s, y = inputs()
    with pytest.raises(ValueError, match=r"`targets` must have the shape of the predictions"):
        call(name, mean, s, y[:, 0])
    with pytest.raises(TypeError, match=r"`where` must be boolean"):
        call(name, mean, s, y, where=jnp.ones(SHAPE))
    with pytest.raises(ValueError, match=r"`weights` must have the shape of the predictions"):
        call(name, mean, s, y, weights=jnp.ones(SHAPE[0]))
    with pytest.raises(TypeError, match=r"`dist` must be a .*got tuple"):
        LOSSES[name]((mean, s), y, **needs(name))


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("beta_nll", {"beta": 1.5}, r"`beta` must lie between 0 and 1, got 1.5"),
        ("beta_nll", {"beta": jnp.ones(2)}, r"`beta` must have the shape of the predictions"),
    ],
)
def test_bad_hyperparameters(name, hyperparameters, message):
    mean, s, y = inputs()
    with pytest.raises(ValueError, match=message):
        LOSSES[name](Gaussian(mean, s), y, **hyperparameters)


def test_names_are_checked():
    with pytest.raises(ValueError, match=r"`loss` must be one of unit_variance, .*; got 'betanll'"):
        LossGradient("betanll")
    with pytest.raises(TypeError, match=r"`beta_nll` has no hyper-parameter gamma; it has: beta"):
        LossGradient("beta_nll", (("gamma", 1.0),))


@family
class LogNormal(Family):
    """A likelihood without a parameter called mean and with positive support."""

    location: jax.Array
    log_variance: jax.Array

    batch_shape = property(lambda self: self.location.shape)
    event_shape = property(lambda self: ())
    _variance_of_log = property(lambda self: jnp.exp(self.log_variance))
    mean = property(lambda self: jnp.exp(self.location + self._variance_of_log / 2))
    variance = property(lambda self: jnp.expm1(self._variance_of_log) * self.mean**2)

    def _log(self):
        return Gaussian(self.location, self.log_variance)

    def nll(self, targets, *, constant=True):
        return self._log().nll(jnp.log(targets), constant=constant) + jnp.log(targets)

    def natural(self, cotangent):
        natural = self._log().natural(Gaussian(cotangent.location, cotangent.log_variance))
        return LogNormal(natural.mean, natural.log_variance)

    def fisher(self, tangent):
        raise NotImplementedError

    def kl(self, other):
        return self._log().kl(other._log())

    def cdf(self, targets):
        return self._log().cdf(jnp.log(targets))

    def quantile(self, probability):
        return jnp.exp(self._log().quantile(probability))

    def draw(self, key):
        return jnp.exp(self._log().draw(key))


GENERIC = ("unit_variance", "nll", "beta_nll", "natural_gradient", "fisher8")


@pytest.mark.parametrize("name", GENERIC)
def test_other_families(name):
    """Masked targets are replaced by a value in the support: a log of 0 would spoil gradients."""
    location, s, y = inputs()
    y = jnp.exp(y)
    where = jnp.asarray([[True], [False]] * 3)
    targets = jnp.where(where, y, jnp.nan)

    def total(location, s):
        values = LOSSES[name](LogNormal(location, s), targets, where=where)
        return values.sum(), values

    with jax.debug_nans(name in NEVER_NAN):
        (_, values), grads = jax.value_and_grad(total, (0, 1), has_aux=True)(location, s)
    dist = LogNormal(location, s)
    expected = {
        "unit_variance": (y - dist.mean) ** 2 / 2,
        "beta_nll": dist.variance**0.5 * dist.nll(y),
    }.get(name, dist.nll(y))
    np.testing.assert_allclose(values, jnp.where(where, expected, 0), rtol=1e-12)
    for gradient in grads:
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[1::2], 0)
        assert np.abs(gradient[::2]).min() > 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(GENERIC)))
def test_losses_of_one_family_say_so(name):
    location, s, y = inputs()
    with pytest.raises(TypeError, match=rf"`dist` must .* for `{name}`.* got LogNormal"):
        LOSSES[name](LogNormal(location, s), jnp.exp(y), **needs(name))


@pytest.mark.parametrize("name", NAMES)
def test_negative_weights_are_refused(name):
    """Their value is finite and their gradient nan; inside `jit` nobody can see them."""
    mean, log_variance, targets = inputs()
    weights = jnp.ones_like(targets).at[2, 1].set(-0.5)
    with pytest.raises(ValueError, match=r"`weights` must not be negative, got -0.5. To leave"):
        LOSSES[name](Gaussian(mean, log_variance), targets, weights=weights, **needs(name))
