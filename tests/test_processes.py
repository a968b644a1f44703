"""Two processes through jax.distributed compute what one process computes."""

import json

import numpy as np
import pytest

from tests.problem import gradient, make_problem
from tests.processes.launch import run_processes


@pytest.mark.parametrize("path", ["identity", "fused"])
def test_two_processes_equal_one(path):
    expected = gradient(path, *make_problem())
    outputs = run_processes("tests.processes.gradient", 2, path)
    assert len(outputs) == 2
    for output in outputs:
        result = json.loads(output.splitlines()[-1])
        assert result["devices"] == 4  # two on each process
        for name, values in result["gradient"].items():
            scale = np.abs(expected[name]).max()
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-6 * scale)
