"""Every mistake a user can make is answered by the argument's name, what came, and the fix."""

import re

import jax
import jax.numpy as jnp
import pytest

from fisher8_jax import Gaussian, fisher8, fisher8_nll

OK = Gaussian(jnp.zeros((4, 2)), jnp.zeros((4, 2)))
Y = jnp.zeros((4, 2))


def call(dist, targets=None, **options):
    return fisher8(dist, **options) if targets is None else fisher8_nll(dist, targets, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((jnp.zeros(3),), {}, TypeError, "`dist` must be a distribution such as"),
        (
            (Gaussian(jnp.zeros(3, int), jnp.zeros(3)),),
            {},
            TypeError,
            "`mean` must be a floating-point array, got dtype int",
        ),
        (
            (Gaussian(jnp.zeros(3), jnp.zeros((3, 1))),),
            {},
            ValueError,
            "same shape, got `mean` (3,), `log_variance` (3, 1). Expand",
        ),
        (
            (Gaussian("mean", jnp.zeros(3)),),
            {},
            TypeError,
            "`mean` must be an array, got str",
        ),
        (
            (Gaussian(jnp.zeros(()), jnp.zeros(())),),
            {},
            ValueError,
            "`axis` 0 does not exist in predictions of shape (). Fisher8 divides by a norm",
        ),
        ((OK,), {"axis": 2}, ValueError, "`axis` 2 does not exist"),
        ((OK,), {"axis": (0, -2)}, ValueError, "`axis` (0, -2) names the same axis twice"),
        ((OK,), {"axis": ()}, ValueError, "leaves nothing to normalise over"),
        ((OK,), {"axis_name": "data"}, ValueError, "`axis_name` 'data' is not bound here"),
        ((OK,), {"gradients_averaged": True}, ValueError, "undoes an average over `axis_name`"),
        ((OK,), {"where": jnp.ones((4, 2))}, TypeError, "`where` must be boolean, got dtype float"),
        (
            (OK,),
            {"where": jnp.ones(4, bool)},
            ValueError,
            "`where` must have the shape of the predictions, (4, 2), with axes of length 1 where "
            "it does not vary, got (4,). Add the missing axes: `where[(...,) + (None,) * 1]`",
        ),
        ((OK,), {"where": jnp.ones((3, 2), bool)}, ValueError, "got (3, 2)"),
        ((OK, Y[:, 0]), {}, ValueError, "`targets` must have the shape of the predictions, (4, 2)"),
        (
            (Gaussian(jnp.zeros((4, 1)), jnp.zeros((4, 1))), Y[:, 0]),
            {},
            ValueError,
            "Drop the last axis of the predictions (`[..., 0]`) or pass `targets[..., None]`",
        ),
        (
            (Gaussian(jnp.zeros(4), jnp.zeros(4)), Y[:, :1]),
            {},
            ValueError,
            "Pass `targets[..., 0]`",
        ),
        ((OK, Y), {"weights": jnp.ones(4)}, ValueError, "`weights` must have the shape"),
    ],
)
def test_message(arguments, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(*arguments, **options)


def test_errors_are_raised_while_tracing():
    with pytest.raises(ValueError, match="`targets` must have the shape"):
        jax.jit(fisher8_nll)(OK, Y[:, 0])


def test_integer_targets_are_fine():
    values = fisher8_nll(Gaussian(jnp.zeros(3), jnp.zeros(3)), jnp.array([0, 1, 2]))
    assert values.dtype == jnp.float64


def test_constructor_rejects_a_negative_minimum():
    with pytest.raises(ValueError, match="`min_variance` must be positive, got -1"):
        Gaussian.from_softplus_variance(jnp.zeros(1), jnp.zeros(1), min_variance=-1)
