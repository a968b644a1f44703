import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.networks import Mlp, spread_over, uniform_layer
from benchmarks.machinery.seeds import generator, seed_of


def test_layers_are_uniform_within_one_over_root_fan_in():
    layer = uniform_layer(np.random.default_rng(0), 16, 4000)
    for values in layer.values():
        assert np.abs(values).max() <= 0.25
        # the std of a uniform on +-1/4 is 0.25/sqrt(3)
        assert abs(values.std() - 0.25 / np.sqrt(3)) < 0.005


def test_padding_the_inputs_leaves_all_other_weights_alone():
    network = Mlp(hidden=(5, 4))
    plain = network.init(generator("a"), 3)
    padded = network.init(generator("a"), 3, 8)
    assert padded["trunk"][0]["w"].shape == (8, 5)
    assert np.array_equal(padded["trunk"][0]["w"][:3], plain["trunk"][0]["w"])
    assert np.all(padded["trunk"][0]["w"][3:] == 0)
    assert np.array_equal(padded["head"]["w"], plain["head"]["w"])


def test_forward_is_the_composition_of_its_layers():
    network = Mlp(hidden=(5,), activation=jnp.tanh, outputs=3)
    params = network.init(generator("b"), 2)
    x = np.array([[0.5, -1.0], [2.0, 0.0]], np.float32)
    hidden = np.tanh(x @ params["trunk"][0]["w"] + params["trunk"][0]["b"])
    expected = hidden @ params["head"]["w"] + params["head"]["b"]
    outputs, variables = network.forward(params, None, jnp.asarray(x))
    np.testing.assert_allclose(np.stack(outputs, axis=-1), expected, rtol=1e-5)
    assert variables is None


def test_a_scale_that_overflowed_does_not_reach_a_stop_gradient_trunk():
    network = Mlp(hidden=(4,))
    params = network.init(generator("e"), 2)
    params["head"]["w"][:, 1] = np.nan
    x = jnp.ones((3, 2), jnp.float32)

    def loss(params, stop_gradient):
        (mean, raw), _ = network.forward(params, None, x, stop_gradient=stop_gradient)
        return jnp.sum(mean) + jnp.sum(raw)

    assert np.isnan(jax.grad(loss)(params, False)["trunk"][0]["w"]).all()
    gradient = jax.grad(loss)(params, True)
    assert np.isfinite(gradient["trunk"][0]["w"]).all()
    assert np.isfinite(gradient["head"]["w"]).all()


def test_spread_units_are_centred_in_the_domain():
    network = Mlp(hidden=(2000, 3), activation=jnp.tanh)
    params = network.init(generator("c"), 1)
    spread = spread_over(params, generator("d"), low=2.0, high=6.0, slope=3.0)
    first = spread["trunk"][0]
    centres = -first["b"] / first["w"][0]
    assert centres.min() >= 2 - 1e-3
    assert centres.max() <= 6 + 1e-3
    assert abs(first["w"].std() - 3) < 0.15  # three standard errors
    assert spread["trunk"][1] is params["trunk"][1]


def test_seeds_depend_on_the_whole_name():
    assert seed_of("a", 1) == seed_of("a", 1)
    assert len({seed_of("a", 1), seed_of("a", 2), seed_of("b", 1), seed_of("a1")}) == 4
    assert 0 <= seed_of("x") < 2**63
