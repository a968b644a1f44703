"""Both heads: what they compute, in which precision, and what they send back."""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.heads import family_link, initial_outputs
from fisher8_jax.heads._links import LINKS, Link
from tests.heads.cases import FEATURES, HEADS
from tests.places import ROOT

both = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)


def features(rows=5, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(0), (rows, FEATURES)).astype(dtype)


def by_hand(link, params, x, target_shape):
    """The head in NumPy."""
    x = np.asarray(x, np.float64)

    def linear(name):
        layer = params[name]
        flat = x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])[None]
        return flat.reshape(len(x), *target_shape)

    if link == "log_variance":
        return linear("mean"), linear("log_variance")
    raw = linear("raw")
    if link == "softplus_std":
        return linear("mean"), 2 * np.log(np.log1p(np.exp(raw)))
    if link == "softplus_variance":
        return linear("mean"), np.log(np.log1p(np.exp(raw)))
    low, high = (np.asarray(params[n])[None] for n in ("min_log_variance", "max_log_variance"))
    below = high - np.log1p(np.exp(high - raw))
    return linear("mean"), low + np.log1p(np.exp(below - low))


@both
@pytest.mark.parametrize("target_shape", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("link", LINKS)
def test_a_head_is_linear_layers_and_a_link(make, link, target_shape):
    params, apply = make(link=link, target_shape=target_shape)
    x = features()
    dist = jax.jit(apply)(params, x)
    mean, log_variance = by_hand(link, params, x, target_shape)
    assert dist.batch_shape == (5, *target_shape)
    np.testing.assert_allclose(dist.mean, mean, atol=2e-6)
    np.testing.assert_allclose(dist.log_variance, log_variance, atol=5e-6)


def test_both_libraries_compute_the_same_numbers_from_the_same_parameters():
    settings = {"link": "soft_bounds", "target_shape": (2,)}
    (params, one), (_, other) = (HEADS[name](**settings) for name in ("linen", "nnx"))
    a, b = one(params, features()), other(params, features())
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_array_equal(a.log_variance, b.log_variance)


@both
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_features_meet_a_float32_head(make, dtype):
    params, apply = make()
    dist = apply(params, features(dtype=dtype))
    wide = apply(params, features(dtype=dtype).astype(jnp.float32))
    assert dist.mean.dtype == dist.log_variance.dtype == jnp.float32
    np.testing.assert_array_equal(dist.mean, wide.mean)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}


@both
def test_features_behind_a_stop_gradient_learn_from_the_mean_alone(make):
    targets = jnp.arange(5.0, dtype=jnp.float32)

    def of_features(x, stop_gradient, part):
        params, apply = make(stop_gradient=stop_gradient)
        dist = apply(params, x)
        held = Gaussian(*(jax.lax.stop_gradient(f) for f in (dist.mean, dist.log_variance)))
        fields = {"mean": held.mean, "log_variance": held.log_variance, part: getattr(dist, part)}
        return Gaussian(**fields).nll(targets).sum()

    gradient = jax.grad(of_features)
    assert np.abs(gradient(features(), False, "log_variance")).max() > 0
    assert np.abs(gradient(features(), True, "log_variance")).max() == 0
    np.testing.assert_array_equal(
        gradient(features(), True, "mean"), gradient(features(), False, "mean")
    )


@both
@pytest.mark.parametrize("link", LINKS)
def test_a_head_starts_at_the_mean_and_variance_of_the_data(make, link):
    rng = np.random.default_rng(0)
    targets = rng.normal([0.3, -0.2], [0.7, 1.1], (200, 2)).astype(np.float32)
    initial = initial_outputs(link, targets)
    zeros = jax.nn.initializers.zeros
    params, apply = make(link=link, target_shape=(2,), initial=initial, kernel_init=zeros)
    dist = apply(params, features())
    np.testing.assert_allclose(dist.mean[0], targets.mean(0), rtol=1e-5)
    np.testing.assert_allclose(dist.variance[0], targets.var(0), rtol=1e-4)


@both
def test_correct_is_fisher8(make):
    params, apply = make(target_shape=(2,))
    targets = jax.random.normal(jax.random.key(1), (5, 2), jnp.float32)
    where = jnp.ones((5, 2), bool).at[1, 0].set(False)

    def gradient(predict):
        return jax.grad(lambda p: jnp.where(where, predict(p).nll(targets), 0).sum())(params)

    inside = gradient(lambda p: apply(p, features(), natural_gradient=True, where=where))
    outside = gradient(lambda p: fisher8(apply(p, features()), where=where))
    plain = gradient(lambda p: apply(p, features()))
    jax.tree.map(np.testing.assert_array_equal, inside, outside)
    assert np.abs(inside["mean"]["kernel"] - plain["mean"]["kernel"]).max() > 1e-3


@both
def test_members_and_leading_axes(make):
    """vmap over parameters, and more than one batch axis, change nothing."""
    params, apply = make(target_shape=(3,))
    x = features(6)
    flat = apply(params, x).mean
    np.testing.assert_allclose(apply(params, x.reshape(2, 3, FEATURES)).mean.reshape(6, 3), flat)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params)
    np.testing.assert_allclose(jax.vmap(lambda p: apply(p, x).mean)(stacked)[1], flat, rtol=1e-6)


@both
def test_mistakes_are_named(make):
    with pytest.raises(ValueError, match=r"`link` must be .* got 'gauss'"):
        make(link="gauss")
    with pytest.raises(ValueError, match=r"`initial` names 'std', but .* mean, log_variance"):
        make(initial={"std": 1.0})
    params, apply = make()
    with pytest.raises(TypeError, match="`features` must be a floating-point"):
        apply(params, jnp.ones((2, FEATURES), jnp.int32))
    with pytest.raises(ValueError, match="`where` has no effect without `natural_gradient=True`"):
        apply(params, features(), where=jnp.ones(5, bool))


def test_mistakes_in_links_and_starts_are_named():
    with pytest.raises(ValueError, match="`std` is not a field of Gaussian"):
        family_link(Gaussian, std=(2,))
    with pytest.raises(ValueError, match="at least one row"):
        initial_outputs("log_variance", jnp.zeros((0, 2)))
    with pytest.raises(ValueError, match="no finite start for the raw output 'log_variance'"):
        initial_outputs("log_variance", jnp.ones(4))
    with pytest.raises(ValueError, match="Standardise them first"):
        initial_outputs("soft_bounds", jnp.array([0.0, 100.0]))
    with pytest.raises(TypeError, match="floating"):
        initial_outputs("softplus_std", jnp.array([0, 1]))
    with pytest.raises(TypeError, match=r"no closed form .* standardise the targets"):
        initial_outputs(family_link(Gaussian), jnp.ones(4))
    assert isinstance(family_link(Gaussian), Link)


@pytest.mark.slow
def test_users_of_a_strict_type_checker_know_the_family(tmp_path):
    program = pathlib.Path(__file__).with_name("strict_user.py")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, program],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert checked.returncode == 0, checked.stdout
