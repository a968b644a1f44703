"""The one vocabulary of argument checks: what passes, what raises, and the words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, evaluate, fisher8, fisher8_nll
from fisher8_jax._internal.checks import (
    check_axis,
    check_choice,
    check_count,
    check_level,
    check_levels,
    check_mask,
    check_number,
    check_real,
    check_targets,
    check_weights,
)

DIST = Gaussian(jnp.zeros(3), jnp.zeros(3))


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1), np.int64(1)])
def test_counts_may_be_numpy_integers(value):
    count = check_count("n", value)
    assert type(count) is int
    assert count == 1


@pytest.mark.parametrize(
    "value", [True, np.True_, 1.0, np.float32(1), "1", None, 0, -3, jnp.ones(2)]
)
def test_counts_are_no_booleans_floats_or_text(value):
    with pytest.raises(ValueError, match="`n` must be a positive integer, got "):
        check_count("n", value)


def test_the_least_count_is_named():
    assert check_count("n", 0, at_least=0) == 0
    with pytest.raises(ValueError, match="`n` must be an integer of at least 0, got -1"):
        check_count("n", -1, at_least=0)
    with pytest.raises(ValueError, match="`n` must be an integer of at least 2, got 1"):
        check_count("n", 1, at_least=2)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"above": 0}, 1e-9, 0, "must be positive, got 0"),
        ({"at_least": 0}, 0, -1e-9, "must not be negative, got -1e-09"),
        ({"above": 0, "below": 1}, 0.5, 1, "must lie strictly between 0 and 1, got 1"),
        ({"at_least": 0, "at_most": 1}, 1, 1.5, "must lie between 0 and 1, got 1.5"),
        ({"at_least": 0, "below": 1}, 0, 1, "must be at least 0 and below 1, got 1"),
        ({"above": 0, "at_most": 1}, 1, 0, "must be above 0 and at most 1, got 0"),
        ({"at_least": 1}, 1, 0.5, "must be at least 1, got 0.5"),
        ({"above": 0}, np.float16(2), np.float32("nan"), "must be positive, got nan"),
    ],
)
def test_numbers_keep_their_bounds(bounds, inside, outside, words):
    check_number("x", inside, **bounds)
    with pytest.raises(ValueError, match=f"`x` {words}"):
        check_number("x", outside, **bounds)


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], 1j])
def test_what_is_no_number_is_a_type_error(value):
    with pytest.raises(TypeError, match="`x` must be a number, got "):
        check_number("x", value)


@pytest.mark.parametrize(
    "value", [jnp.array(True), np.bool_(True), np.complex64(1), np.zeros(2, complex)]
)
def test_arrays_of_numbers_are_real(value):
    with pytest.raises(TypeError, match=r"`x` must hold real numbers, got dtype (bool|complex)"):
        check_number("x", value)


def test_traced_numbers_pass():
    def f(x):
        check_number("x", x, above=0)
        return x

    assert jax.jit(f)(-1.0) == -1


def test_levels():
    assert check_levels([0.5, np.float32(0.75)]) == (0.5, 0.75)
    assert check_levels(np.array([0.5])) == (0.5,)
    for wrong, words in [
        (0.9, r"`levels` must be a sequence, got 0.9. Pass `\(0.9,\)`"),
        (None, "`levels` must be a sequence of numbers, got None"),
        ("0.9", "`levels` must be a sequence of numbers, got '0.9'"),
        (("a",), "`levels` must be a number, got 'a'"),
    ]:
        with pytest.raises(TypeError, match=words):
            check_levels(wrong)
    with pytest.raises(ValueError, match="`levels` must hold at least one level"):
        check_levels(())
    with pytest.raises(ValueError, match=r"strictly between 0 and 1, got 95. A level of 95 % is"):
        check_level("coverage", 95)


def test_choices_are_listed():
    check_choice("mode", "cap", ("target", "cap"))
    with pytest.raises(ValueError, match="`mode` must be one of target, cap; got 'caps'"):
        check_choice("mode", "caps", ("target", "cap"))


@pytest.mark.parametrize("array", [np.array([True]), np.array([1j]), jnp.array([1 + 0j])])
def test_targets_and_weights_are_real(array):
    for check in (check_real, lambda name, x: check_targets(x, (1,), name)):
        with pytest.raises(
            TypeError, match=r"`y` must hold real numbers, got dtype (bool|complex)"
        ):
            check("y", array)
    with pytest.raises(TypeError, match="`w` must hold real numbers"):
        check_weights("w", array, (1,))


def test_boolean_and_complex_arguments_are_refused_by_the_method():
    with pytest.raises(TypeError, match="`targets` must hold real numbers, got dtype bool"):
        fisher8_nll(DIST, jnp.ones(3, bool))
    with pytest.raises(TypeError, match="`targets` must hold real numbers, got dtype complex"):
        evaluate(DIST, jnp.ones(3, complex))
    with pytest.raises(TypeError, match="`weights` must hold real numbers, got dtype bool"):
        fisher8_nll(DIST, jnp.ones(3), weights=jnp.ones(3, bool))
    with pytest.raises(TypeError, match="`mean` must be a floating-point array, got dtype complex"):
        fisher8(Gaussian(jnp.ones(3, complex), jnp.zeros(3)))


def test_masks_are_boolean():
    with pytest.raises(TypeError, match="`where` must be boolean, got dtype float64"):
        check_mask("where", jnp.ones(3), (3,))


@pytest.mark.parametrize("axis", [None, 1.5, "batch", True, (0, None), jnp.array(0)])
def test_an_axis_is_an_integer_or_several(axis):
    with pytest.raises(TypeError, match="`axis` must be an integer or a tuple of integers, got "):
        fisher8(DIST, axis=axis)


def test_axes_may_be_numpy_integers_or_a_list():
    shape = (2, 3)
    assert check_axis(np.int64(-1), shape, axis_name=None) == (1,)
    assert check_axis([0, -1], shape, axis_name=None) == (0, 1)
    with pytest.raises(TypeError, match=r"All axes of these predictions are `axis=\(0, 1\)`"):
        check_axis(None, shape, axis_name=None)


def test_metrics_explain_a_wrong_axis():
    with pytest.raises(
        TypeError, match="`axis` must be an integer or a tuple of integers, got 'all'"
    ):
        evaluate(DIST, jnp.zeros(3), axis="all")
