"""The radius measured by the difference of two forward passes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import Gaussian, fisher8
from fisher8_jax.optimizers import scale_by_kl_radius
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network


def step(dtype, measure, *, factor=1.0, seed=0, **extra):
    params = make_params(seed, dtype)
    inputs, targets = make_batch(dtype=dtype)
    gradients = fisher8_gradients(params, inputs, targets)
    updates = jax.tree.map(lambda g: -factor * g, gradients)
    radius = scale_by_kl_radius(0.3, measure=measure)
    extra.setdefault("predict", lambda p: network(p, inputs))
    return jax.jit(lambda: radius.update(updates, radius.init(params), params, **extra))()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_derivative(dtype, seed):
    by_difference, state = step(dtype, "difference", seed=seed)
    by_derivative, _ = step(dtype, "derivative", seed=seed)
    assert by_difference["w1"].dtype == dtype
    np.testing.assert_allclose(by_difference["w1"], by_derivative["w1"], rtol=5e-3)
    assert float(state.quadratic_kl) == pytest.approx(0.3, rel=1e-5)


@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
def test_the_size_of_the_update_does_not_matter(factor):
    scaled, _ = step(jnp.float32, "difference", factor=factor)
    np.testing.assert_allclose(scaled["w1"], step(jnp.float32, "difference")[0]["w1"], rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e12])
def test_agrees_with_the_derivative_for_large_arrays(factor):
    """The lengths of arrays beyond `LARGE_ARRAY` numbers are taken another way."""
    rng = np.random.default_rng(0)
    shapes = {"a": (4, 300), "b": (300, 300), "c": (300, 2)}
    params, updates = (
        {n: jnp.asarray(rng.normal(size=s) / s[0] ** 0.5, jnp.float32) for n, s in shapes.items()}
        for _ in range(2)
    )
    inputs = jnp.asarray(rng.normal(size=(32, 4)), jnp.float32)
    updates = jax.tree.map(lambda leaf: factor * leaf, updates)

    def predict(params):
        hidden = jnp.tanh(jnp.tanh(inputs @ params["a"]) @ params["b"])
        return Gaussian(*(hidden @ params["c"]).T)

    found = []
    for measure in ("difference", "derivative"):
        radius = scale_by_kl_radius(0.3, max_change=1.0, measure=measure)
        update = jax.jit(functools.partial(radius.update, predict=predict))
        found.append(update(updates, radius.init(params), params)[0])
        bad = updates | {"b": updates["b"].at[7, 3].set(jnp.nan)}
        dropped, state = update(bad, radius.init(params), params)
        assert int(state.skipped) == 1
        assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(dropped))
    np.testing.assert_allclose(found[0]["b"], found[1]["b"], rtol=5e-3)


def test_predict_may_contain_the_rule():
    inputs, _ = make_batch(dtype=jnp.float32)
    scaled, _ = step(jnp.float32, "difference", predict=lambda p: fisher8(network(p, inputs)))
    np.testing.assert_array_equal(scaled["w1"], step(jnp.float32, "difference")[0]["w1"])


def test_masks_and_bad_updates():
    where = jnp.arange(8) < 5
    masked, _ = step(jnp.float64, "difference", where=where)
    expected, _ = step(jnp.float64, "derivative", where=where)
    np.testing.assert_allclose(masked["w1"], expected["w1"], rtol=5e-3)
    for factor in (jnp.nan, jnp.inf, 0.0):
        dropped, state = step(jnp.float32, "difference", factor=factor)
        assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(dropped))
        assert int(state.skipped) == 1


def test_vmap_over_runs():
    inputs, targets = make_batch(dtype=jnp.float32)
    runs = [make_params(seed, jnp.float32) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    radius = scale_by_kl_radius(0.1, measure="difference")

    def update(params):
        gradients = fisher8_gradients(params, inputs, targets)
        return radius.update(
            gradients, radius.init(params), params, predict=lambda p: network(p, inputs)
        )[0]

    together = jax.jit(jax.vmap(update))(stacked)
    np.testing.assert_allclose(together["w2"][1], update(runs[1])["w2"], rtol=1e-4)


def test_training_reaches_the_same_loss():
    """Fifty steps of the two measures end within a hundredth of a nat."""
    inputs, targets = make_batch(size=64, dtype=jnp.float32)

    def train(measure):
        optimizer = optax.chain(optax.sgd(1.0), scale_by_kl_radius(0.01, measure=measure))
        params = make_params(dtype=jnp.float32)

        def body(_, carry):
            params, state = carry
            gradients = fisher8_gradients(params, inputs, targets)
            updates, state = optimizer.update(
                gradients, state, params, predict=lambda p: network(p, inputs)
            )
            return optax.apply_updates(params, updates), state

        params, _ = jax.lax.fori_loop(0, 50, body, (params, optimizer.init(params)))
        return float(network(params, inputs).nll(targets).mean())

    assert train("difference") == pytest.approx(train("derivative"), abs=0.01)


def test_errors():
    with pytest.raises(ValueError, match="`measure` must be one of derivative, difference"):
        scale_by_kl_radius(0.1, measure="jvp")
    with pytest.raises(ValueError, match=r"lost in bfloat16 \(parameters\)"):
        step(jnp.bfloat16, "difference")
    inputs, _ = make_batch(dtype=jnp.float32)

    @jax.jit
    def in_bfloat16(params):
        low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        return jax.tree.map(lambda x: x.astype(jnp.float32), network(low, inputs))

    with pytest.raises(ValueError, match=r"lost in bfloat16 \(`predict`\)"):
        step(jnp.float32, "difference", predict=in_bfloat16)
    with pytest.raises(ValueError, match="needs `predict`"):
        step(jnp.float32, "difference", predict=None)
