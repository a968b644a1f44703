"""The examples train, and their steps stay short enough to be read at a glance."""

import ast
import importlib
import inspect
import re
import runpy
from pathlib import Path

import jax
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


@pytest.mark.parametrize("path", sorted(Path("examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_one_file_that_runs_anywhere(path):
    """It imports nothing of this repository but the installed package."""
    imports = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert not imports & {"examples", "benchmarks", "tests"}


RECIPES = ("pets_ensemble", "behaviour_cloning", "neural_process")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_with_and_without_its_one_new_line(name):
    example = importlib.import_module(f"examples.{name}")
    source = inspect.getsource(example)
    assert source.count("fisher8(") == 1  # the one changed line
    # Code as it is found elsewhere: with JAX's own defaults.
    with jax.numpy_rank_promotion("allow"), jax.enable_x64(False):
        for corrected in (False, True):
            start = example.main(corrected=corrected, steps=1)
            assert example.main(corrected=corrected, steps=100) < start - 0.1


NETWORKS = ("network_jax", "network_nnx", "network_linen", "network_equinox")


@pytest.mark.parametrize("name", NETWORKS)
def test_an_example_of_the_natural_gradient_trains_in_less_than_35_lines(name):
    if name == "network_equinox":
        pytest.importorskip("equinox")
    example = importlib.import_module(f"examples.{name}")
    program, _, _ = inspect.getsource(example).partition('\n\n\nif __name__ == "__main__":')
    assert len(program.splitlines()) < 35
    first, last = example.main(steps=40)
    # The entropy of the data is 0.14; a constant prediction has an NLL of about 0.8.
    assert first > 0.8 > 0.4 > last


def test_an_example_says_what_it_did(capsys):
    """Each file prints when it is run; one of them is."""
    for path in sorted(Path("examples").glob("*.py")):
        assert path.stem == "__init__" or "print(" in path.read_text(), path
    runpy.run_path("examples/network_jax.py", run_name="__main__")
    assert re.fullmatch(r"NLL \d\.\d{3} -> -?\d\.\d{3}\n", capsys.readouterr().out)


def test_the_forecaster_learns_with_missing_values():
    example = importlib.import_module("examples.forecaster")
    with jax.numpy_rank_promotion("allow"), jax.enable_x64(False):
        first, last = (example.main(steps=steps) for steps in (1, 60))
    assert last[0] < first[0] - 0.1  # NLL
    assert last[1] < first[1]  # CRPS


def test_an_adapter_learns_in_three_ways_while_the_network_stays():
    example = importlib.import_module("examples.fine_tuning")
    with jax.numpy_rank_promotion("allow"), jax.enable_x64(False):
        found = example.main(pretraining=40, steps=60)
    # Angles are uniform within 45 degrees of 0: a constant errs by 26, at an NLL of 0.87.
    for rmse, nll in found.values():
        assert rmse < 22
        assert nll < 0.7
