"""Two processes through jax.distributed compute what one process computes."""

import json

import numpy as np
import pytest

from tests.problem import gradient, make_problem
from tests.processes.launch import run_processes

PATHS = ("identity", "fused")


@pytest.fixture(scope="module")
def results():
    """What each of the two processes computed, by all paths."""
    outputs = run_processes("tests.processes.gradient", 2, *PATHS)
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.parametrize("path", PATHS)
def test_two_processes_equal_one(results, path):
    expected = gradient(path, *make_problem())
    assert [result["devices"] for result in results] == [4, 4]  # two on each process
    for result in results:
        assert set(result["gradients"][path]) == set(expected)
        for name, values in result["gradients"][path].items():
            scale = np.abs(expected[name]).max()
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-6 * scale)
