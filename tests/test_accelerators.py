"""What users run lowers for CUDA and TPU, without such a device at hand.

Lowering fails for operations that a platform lacks, and `jax.export` refuses custom calls without a
promise of stability. It neither compiles nor runs; `python -m fisher8_jax check` does, on a device.
"""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import (
    Gaussian,
    evaluate,
    fisher8_nll,
    fisher8_optimizer,
    network_gradient,
    network_optimizer,
)
from fisher8_jax.curvature import Blocks, ConjugateGradients
from fisher8_jax.posterior import fit_posterior
from tests.families.table import CASES

PARAMS = {"kernel": np.ones((3, 8), np.float32), "head": np.ones((8, 2), np.float32)}
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(16, 3)
Y = X[:, 0] ** 2


def predict(params, x):
    hidden = jnp.tanh(x @ params["kernel"])
    return Gaussian(*jnp.moveaxis(hidden @ params["head"], -1, 0))


def default_step(params, x, y):
    optimizer = fisher8_optimizer(100)
    gradient = jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params)
    state = optimizer.init(params)
    return optimizer.update(gradient, state, params, predict=lambda p: predict(p, x))


def natural_step(solver):
    def step(params, x, y):
        optimizer = network_optimizer(100)
        found = network_gradient(predict, params, x, y, solver=solver)
        updates, state = optimizer.update(
            found.gradient,
            optimizer.init(params),
            params,
            step_kl=found.step_kl,
            predict=lambda p: predict(p, x),  # for `Blocks`, which has no `step_kl`
        )
        return optax.apply_updates(params, updates), state

    return step


PROGRAMS = {
    "fisher8_optimizer": default_step,
    "direct solver": natural_step("auto"),
    "blocks": natural_step(Blocks(4)),
    "conjugate gradients": natural_step(ConjugateGradients(5)),
    "evaluate": lambda params, x, y: evaluate(predict(params, x), y).crps,
}


def export(program, platform, *arguments):
    return jax.export.export(jax.jit(program), platforms=[platform])(*arguments)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_lowers_in_float32(name, platform):
    with jax.enable_x64(False):
        exported = export(PROGRAMS[name], platform, PARAMS, X, Y)
    assert exported.platforms == (platform,)
    assert exported.mlir_module_serialized


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_predictions_of_a_posterior_lower(platform):
    posterior = fit_posterior(predict, PARAMS, X, Y, tune=False)
    exported = export(lambda x: posterior.predict(x).variance, platform, X)
    assert exported.platforms == (platform,)


@pytest.mark.parametrize("name", CASES)
def test_every_family_lowers(name):
    """Its Fisher8 gradient, for both platforms in one program."""
    case = CASES[name]
    dist, targets = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float32), (case.dist, case.targets)
    )
    gradient = jax.jit(jax.grad(lambda dist, y: fisher8_nll(dist, y).mean()))
    exported = jax.export.export(gradient, platforms=["cuda", "tpu"])(dist, targets)
    assert exported.platforms == ("cuda", "tpu")


def test_what_a_platform_lacks_is_found():
    """The check can fail: a Schur decomposition runs on CPUs alone."""
    with pytest.raises(NotImplementedError, match="cuda"):
        export(lambda x: jax.scipy.linalg.schur(x)[0], "cuda", jnp.eye(3))
