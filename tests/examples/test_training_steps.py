"""The examples train, and their steps stay short enough to be read at a glance."""

import importlib
import inspect

import pytest

EXAMPLES = ("train_nnx", "train_linen", "train_jax", "train_equinox")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains(name):
    if name == "train_equinox":
        pytest.importorskip("equinox")
    example = importlib.import_module(f"examples.{name}")
    first, last = example.main()
    # The entropy of the data is 0.14; a constant prediction has an NLL of about 0.8.
    assert first > 0.8 > 0.4 > last


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_complete_training_step_takes_less_than_30_lines(name):
    if name == "train_equinox":
        pytest.importorskip("equinox")
    example = importlib.import_module(f"examples.{name}")
    step = getattr(example.train_step, "__wrapped__", example.train_step)
    assert len(inspect.getsource(step).splitlines()) < 30
