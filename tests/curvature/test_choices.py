"""What is chosen by cost: the solver, and the way to every leaf's gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fisher8_jax import Gaussian, network_curvature, network_gradient
from fisher8_jax.curvature import Auto, Blocks, ConjugateGradients, Direct
from fisher8_jax.curvature._cost import forward_operations
from fisher8_jax.curvature._gram import leaf_rows, pull_back
from fisher8_jax.curvature._problem import Mask, pose
from fisher8_jax.heads import linen as linen_heads
from fisher8_jax.heads import nnx as nnx_heads
from tests.curvature.dense import dense_natural_gradient, relative_error
from tests.curvature.networks import ROWS
from tests.curvature.test_solvers import DAMPING


def test_rows_and_uses_give_the_same_gradient():
    """An image whose rows are cheaper, so that both ways are taken in one network."""
    rng = np.random.default_rng(4)
    params = {
        "kernel": jnp.asarray(rng.normal(size=(3, 3, 1, 2))),
        "shift": jnp.asarray(rng.normal(size=2)),
        "head": jnp.asarray(rng.normal(size=(2, 2))),
        "count": jnp.array(3),
    }

    def predict_one(params, image):
        numbers = ("NHWC", "HWIO", "NHWC")
        shift = params["shift"][None, None, None]
        hidden = jax.lax.conv_general_dilated(
            image[None], params["kernel"], (2, 1), "SAME", dimension_numbers=numbers
        )
        return Gaussian(*(jnp.tanh(hidden + shift).mean((0, 1, 2)) @ params["head"]))

    images = jnp.asarray(rng.normal(size=(ROWS, 6, 5, 1)))
    options = {"damping": DAMPING, "mask": Mask(None, None), "axis_name": None}
    problem = pose(predict_one, params, images, **options)
    chosen = [leaf.rows_pull_back for leaf in problem.plan.leaves]
    assert chosen == [False, False, True, True]  # count, head, kernel, shift
    outputs = jnp.asarray(rng.normal(size=(2, ROWS)))
    for found in (pull_back(problem, outputs, leaf_rows(problem)), pull_back(problem, outputs, {})):
        for ours, theirs in zip(found, problem.pull(outputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def chosen(rows, width, targets, solver="auto"):
    """What is taken for a network with one hidden layer, from shapes alone."""

    def predict_one(params, x):
        mean, log_variance = jnp.split(jnp.tanh(x @ params["first"]) @ params["head"], 2)
        return Gaussian(mean, log_variance)

    def curvature(params, x):
        nonlocal found
        found = network_curvature(predict_one, params, x, solver=solver)

    found = None
    shapes = {"first": (4, width), "head": (width, 2 * targets)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in shapes.items()}
    jax.eval_shape(curvature, params, jax.ShapeDtypeStruct((rows, 4), jnp.float32))
    return found


@pytest.mark.parametrize(
    ("rows", "width", "targets", "solver"),
    [
        (300, 4096, 1, Blocks(38)),  # a single wide layer is cheap beside its deltas' products
        (32, 50, 1, Direct()),
        (256, 50, 1, Blocks(32)),
        (64, 64, 4, Blocks(8, 2)),  # 8 outputs a row: their deltas leave little of the budget
        (64, 64, 16, Blocks(8, 2)),  # over the budget, but cheaper than iterations
        (16, 64, 96, ConjugateGradients()),  # 192 backward passes
        (16, 1_000_000, 16, ConjugateGradients()),  # 2e9 bytes in the deltas alone
    ],
)
def test_auto_takes_the_most_exact_solver_within_its_budget(rows, width, targets, solver):
    curvature = chosen(rows, width, targets)
    assert curvature.solver == solver
    if solver in (Direct(), Blocks(32), Blocks(38)):
        assert curvature.nll_steps <= 10
        assert f"about {curvature.nll_steps:.1f} NLL steps" in curvature.describe()


def test_the_budget_is_the_users():
    assert chosen(256, 50, 1, Auto(nll_steps=100)).solver == Direct()
    assert chosen(256, 50, 1, Auto(nll_steps=1)).solver == Blocks(8)
    assert chosen(256, 50, 1, Auto(gigabytes=1e-6)).solver == ConjugateGradients()
    with pytest.raises(ValueError, match=r"`Auto\.nll_steps` must be positive"):
        chosen(4, 4, 1, Auto(nll_steps=0.0))


def test_operations_are_those_of_products_convolutions_and_loops():
    def program(x):
        def body(carry, _):
            return jnp.tanh(carry @ jnp.ones((5, 5))), None

        image = jax.lax.conv_general_dilated(x, jnp.ones((7, 3, 2, 2)), (1, 1), "SAME")
        return jax.lax.scan(body, jnp.ones(5), length=10)[0], image

    jaxpr = jax.make_jaxpr(program)(jnp.ones((1, 3, 6, 6))).jaxpr
    expected = 10 * (2 * 25 + 5) + 2 * 7 * 36 * 3 * 4
    assert expected <= forward_operations(jaxpr) <= expected + 350  # and constants


def test_blocks_of_outputs_solve_for_each_target_alone():
    """Against the dense gradients of single targets, of which a masked element is missing."""
    rng = np.random.default_rng(2)
    params = {"a": jnp.asarray(rng.normal(size=(3, 5))), "b": jnp.asarray(rng.normal(size=(5, 4)))}
    inputs, targets = (jnp.asarray(rng.normal(size=shape)) for shape in ((6, 3), (6, 2)))
    where = jnp.ones((6, 2), bool).at[1, 0].set(False)

    def predict_one(params, x):
        outputs = jnp.tanh(x @ params["a"]) @ params["b"]
        return Gaussian(outputs[:2], 0.3 * outputs[2:])

    def alone(target):
        def predict(params, x):
            dist = predict_one(params, x)
            return Gaussian(dist.mean[target], dist.log_variance[target])

        args = params, inputs, targets[:, target], DAMPING
        return dense_natural_gradient(predict, *args, where=where[:, target])

    reference = alone(0) * 5 / 11 + alone(1) * 6 / 11
    step = jax.jit(
        lambda p: network_gradient(
            predict_one, p, inputs, targets, damping=DAMPING, where=where, solver=Blocks(6, 2)
        )
    )(params)
    assert relative_error(step.gradient, reference) < 1e-9
    with pytest.raises(ValueError, match=r"`Blocks\.outputs` must divide the 4 outputs"):
        network_gradient(predict_one, params, inputs, targets, solver=Blocks(6, 3))


def test_modules_and_activations_are_refused_with_what_to_pass():
    x, y = jnp.ones((4, 2)), jnp.ones(4)
    head = nnx_heads.DistributionHead(2, rngs=nnx.Rngs(0))
    for call in (network_gradient, network_curvature):
        last = (y,) if call is network_gradient else ()
        with pytest.raises(TypeError, match=r"got the module DistributionHead.*predict_one_fn"):
            call(head, nnx.state(head), x, *last)
        linen = linen_heads.DistributionHead()
        with pytest.raises(TypeError, match=r"got the module DistributionHead.*module.apply"):
            call(linen, linen.init(jax.random.key(0), x), x, *last)
        with pytest.raises(TypeError, match=r"\['act'\] is .*eqx.partition"):
            call(lambda p, x: None, {"w": jnp.ones(2), "act": jnp.tanh}, x, *last)
