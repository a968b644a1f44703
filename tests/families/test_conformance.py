"""One suite over the table of families: SciPy, quadrature and exact sums against the contract."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import scoringrules

from fisher8_jax import fisher8_nll
from fisher8_jax._internal.trees import array_fields
from tests.families.conformance import (
    QUICK,
    flatten,
    report,
    report_of,
    rounded_pair,
    unflatten,
)
from tests.families.table import CASES

pytestmark = pytest.mark.parametrize("name", CASES)


def projector(name: str, size: int) -> np.ndarray:
    """The identity, without the direction that adds a number to all logits."""
    logits = {"Categorical": size, "GaussianMixture": 2}.get(name, 0)
    result = np.eye(size)
    result[:logits, :logits] -= 1 / max(logits, 1)
    return result


def complete_information(case) -> np.ndarray:
    """The complete-data information of a mixture from that of its parts, written out anew."""
    w = np.exp(case.dist.logits) / np.exp(case.dist.logits).sum(-1, keepdims=True)
    size = w.shape[-1]
    result = np.zeros((len(w), 3 * size, 3 * size))
    for i, weights in enumerate(w):
        result[i, :size, :size] = np.diag(weights) - np.outer(weights, weights)
        precision = np.exp(-case.dist.component_log_variances[i])
        result[i, size : 2 * size, size : 2 * size] = np.diag(weights * precision)
        result[i, 2 * size :, 2 * size :] = np.diag(weights / 2)
    return result


def test_nll_equals_scipy(name):
    case, got = report(name)
    np.testing.assert_allclose(got["nll"], -case.log_prob(case.targets), rtol=1e-9, atol=1e-11)


def test_the_constant_depends_on_nothing(name):
    _, got = report(name)
    np.testing.assert_allclose(got["constant"], np.full(4, got["constant"][0]), atol=1e-12)


def test_information_is_the_mean_outer_product_of_scores(name):
    case, got = report(name)
    if case.complete_data:
        np.testing.assert_allclose(got["information"], complete_information(case), atol=1e-12)
        # Unseen components carry information that the targets alone do not.
        assert np.linalg.eigvalsh(got["information"] - got["outer"]).min() > -1e-8
    else:
        np.testing.assert_allclose(got["information"], got["outer"], rtol=1e-6, atol=1e-7)


def test_information_is_the_mean_hessian(name):
    case, got = report(name)
    if case.complete_data or not case.smooth:
        assert np.abs(got["hessian"] - got["information"]).max() > 0.01, "no exemption needed"
    else:
        np.testing.assert_allclose(got["information"], got["hessian"], rtol=1e-6, atol=1e-7)


def test_inverse_times_information_is_the_identity(name):
    _, got = report(name)
    product = got["inverse"] @ got["information"]
    expected = np.broadcast_to(projector(name, product.shape[-1]), product.shape)
    np.testing.assert_allclose(product, expected, atol=1e-7)


def test_fisher_applies_the_information_and_natural_undoes_it(name):
    _, got = report(name)
    np.testing.assert_allclose(got["fisher"], got["information"], rtol=1e-9, atol=1e-9)
    expected = got["direction"] @ projector(name, got["direction"].shape[-1]).T
    np.testing.assert_allclose(got["round_trip_tangent"], expected, atol=1e-7)


def test_factor_is_lower_triangular_and_its_square_is_the_information(name):
    _, got = report(name)
    factor = got["factor"]
    np.testing.assert_array_equal(factor, np.tril(factor))
    square = factor @ factor.swapaxes(-1, -2)
    np.testing.assert_allclose(square, got["information"], rtol=1e-9, atol=1e-9)


def test_quadratic_form_is_twice_the_divergence_of_a_small_step(name):
    case, got = report(name)
    if case.complete_data:
        assert np.all(got["kl_small"] < got["quadratic"])
    else:
        # A kink makes the next term of the expansion cubic in the step instead of quartic.
        rtol = 2e-5 if case.smooth else 2e-3
        np.testing.assert_allclose(got["kl_small"], got["quadratic"], rtol=rtol)


def test_divergence_is_the_mean_log_ratio(name):
    case, got = report(name)
    expected = (case.probabilities * got["log_ratio"]).sum(0)
    # The nodes do not know of a kink of the other distribution; a mixture is integrated twice.
    rtol = 1e-5 if case.complete_data else 1e-6 if case.smooth else 1e-3
    np.testing.assert_allclose(got["kl"], expected, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(got["kl_self"], 0, atol=1e-9)
    assert np.all(got["kl"] > 0)


def test_cdf_equals_scipy_and_quantile_inverts_it(name):
    case, got = report(name)
    # A declared family interpolates linearly between its nodes.
    tolerance = 1e-3 if name.startswith("declared") else 1e-8
    np.testing.assert_allclose(got["cdf"], case.cdf(case.targets), rtol=tolerance, atol=1e-9)
    if case.discrete:
        np.testing.assert_array_equal(got["round_trip"], case.targets)
        np.testing.assert_array_less(0.3 - 1e-12, case.cdf(got["quantiles"]))
        below = np.where(got["quantiles"] > 0, case.cdf(got["quantiles"] - 1), 0)
        np.testing.assert_array_less(below, 0.3)
        return
    turns = 2 * np.pi if name == "VonMises" else np.inf
    difference = got["round_trip"] - case.targets
    difference = difference - (0 if np.isinf(turns) else turns * np.round(difference / turns))
    np.testing.assert_allclose(difference, 0, atol=1e-6)
    np.testing.assert_allclose(case.cdf(got["quantiles"]), 0.3, rtol=max(1e-7, tolerance))


def test_mean_and_variance_equal_those_of_scipy(name):
    case, got = report(name)
    np.testing.assert_allclose(got["mean"], case.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(got["variance"], case.variance, rtol=1e-6, atol=1e-9)


def test_samples_follow_the_cdf_and_the_moments(name):
    case, got = report(name)
    samples = got["samples"]
    assert samples.shape == (4000, *case.targets.shape)
    if name == "VonMises":  # moments of an angle are those of its sine and cosine
        samples = 1 - np.cos(samples - case.mean)
        error = np.abs(samples.mean(0) - case.variance)
        assert np.all(error < 5 * samples.std(0) / np.sqrt(4000))
        return
    # Five standard errors, those of the variance from the sample's own fourth moment.
    assert np.all(np.abs(samples.mean(0) - case.mean) < 5 * samples.std(0) / np.sqrt(4000))
    squares = (samples - case.mean) ** 2
    error = np.abs(squares.mean(0) - case.variance)
    assert np.all(error < 5 * squares.std(0) / np.sqrt(4000) + 1e-12)
    if not case.discrete:
        u = case.cdf(samples).reshape(4000, -1)
        p_values = [scipy.stats.kstest(column, "uniform").pvalue for column in u.T]
        assert min(p_values) > 1e-4


def test_natural_score_is_the_inverse_information_times_the_gradient(name):
    _, got = report(name)
    expected = np.einsum("bij,bj->bi", got["inverse"], got["nll_gradient"])
    np.testing.assert_allclose(got["score"], expected, rtol=1e-6, atol=1e-9)


def test_op_and_fused_loss_agree(name):
    _, got = report(name)
    np.testing.assert_allclose(got["fused"], got["op"], rtol=1e-6, atol=1e-9)
    assert np.all(np.isfinite(got["op"]))


def angle_between(x: np.ndarray) -> np.ndarray:
    return np.abs(x - 2 * np.pi * np.round(x / (2 * np.pi)))


def test_crps_equals_its_kernel_form_and_an_independent_library(name):
    case, got = report(name)
    if case.dist.event_shape:  # of every coordinate
        expected = scoringrules.crps_normal(case.targets, case.mean, np.sqrt(case.variance))
        np.testing.assert_allclose(got["crps"], expected, rtol=1e-6)
        return
    # E|Y - y| - E|Y - Y'| / 2 by the nodes, whose spacing blurs the kinks a little.
    distance = angle_between if name == "VonMises" else np.abs
    x, p = case.nodes, case.probabilities
    between = np.einsum("ib,jb,ijb->b", p, p, distance(x[:, None] - x[None]))
    kernel = (p * distance(x - case.targets)).sum(0) - 0.5 * between
    np.testing.assert_allclose(got["crps"], kernel, rtol=1e-2 if case.complete_data else 2e-3)
    if case.crps is not None:
        np.testing.assert_allclose(got["crps"], case.crps(case.targets), rtol=1e-6)


def extreme_grid(case) -> jax.Array:
    """Rows of parameters at both ends of the range, in all combinations of signs."""
    size = flatten(case.dist).shape[1]
    signs = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=min(size, 3))))
    repeats = -(-size // signs.shape[1])
    return jnp.asarray(case.extreme * np.tile(signs, repeats)[:, :size])


@functools.partial(jax.jit, compiler_options=QUICK)
def _training_gradients(dist, targets):
    def loss(d):
        return fisher8_nll(d, targets).sum()

    cast = lambda dtype: jax.tree.map(lambda x: x.astype(dtype), dist)  # noqa: E731
    return [jax.grad(loss)(cast(dtype)) for dtype in (jnp.float32, jnp.bfloat16)]


def test_gradients_are_finite_for_extreme_parameters_in_narrow_floats(name):
    case, _ = report(name)
    grid = extreme_grid(case)
    dist = unflatten(case.dist, grid)
    if name == "LowRankGaussian":  # the table's damping is for exactness in double precision
        dist = dataclasses.replace(dist, damping=1e-5)
    targets = jnp.asarray(np.resize(case.targets, (len(grid), *case.targets.shape[1:])))
    for result, dtype in zip(
        _training_gradients(dist, targets.astype(jnp.float32)),
        (jnp.float32, jnp.bfloat16),
        strict=True,
    ):
        for field in array_fields(result):
            column = getattr(result, field)
            assert column.dtype == dtype
            assert jnp.all(jnp.isfinite(column)), field
            shared = field in case.dist.shared_norms
            axes = tuple(range(column.ndim)) if shared else (0,)
            norm = jnp.sqrt(jnp.sum(jnp.square(column.astype(jnp.float32)), axes))
            np.testing.assert_allclose(norm, 1, rtol=1e-5 if dtype == jnp.float32 else 1e-2)


def answers(dist, other, targets):
    """What users ask of a distribution."""
    cdf = dist.cdf(targets)
    return {
        "nll": dist.nll(targets),
        "kl": dist.kl(other),
        "cdf": cdf,
        "quantiles": dist.quantile(jnp.full_like(cdf, 0.3)),
        "mean": dist.mean,
        "variance": dist.variance,
    }


_answers_one_by_one = jax.jit(jax.vmap(answers), compiler_options=QUICK)


@pytest.mark.slow
def test_answers_under_vmap_in_narrow_floats_meet_double_precision(name):
    case, _ = report(name)
    pair = rounded_pair(case)
    expected = report_of(case, *pair)
    half, single = (
        jax.tree.map(lambda x: x.astype(dtype), pair)  # noqa: B023
        for dtype in (jnp.bfloat16, jnp.float32)
    )
    targets = jnp.asarray(case.targets, jnp.float32)
    for quantity, values in _answers_one_by_one(*half, targets).items():
        # Moments, and the quantiles of a Gaussian, come in the dtype of the parameters.
        is_wide = values.dtype == jnp.float32
        assert is_wide or quantity in ("mean", "variance", "quantiles")
        np.testing.assert_allclose(
            values.astype(jnp.float32),
            expected[quantity],
            rtol=1e-3 if is_wide else 0.02,
            atol=1e-5 if is_wide else 0.01,
            err_msg=quantity,
        )
    for quantity, values in jax.eval_shape(jax.vmap(answers), *single, targets).items():
        assert values.dtype == jnp.float32, quantity
